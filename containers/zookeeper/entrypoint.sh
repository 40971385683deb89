# Writes the configuration as the official image does, and becomes the server.
set -eu
cat > /conf/zoo.cfg <<END
clientPort=2181
dataDir=/data
dataLogDir=/datalog
tickTime=${ZOO_TICK_TIME:-2000}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
autopurge.purgeInterval=${ZOO_AUTOPURGE_PURGEINTERVAL:-0}
autopurge.snapRetainCount=${ZOO_AUTOPURGE_SNAPRETAINCOUNT:-3}
admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}
END
exec java ${JVMFLAGS:-} -cp '/opt/zookeeper/*' \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
