package echoless;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/** The file that --security names; its lines are name=value, by librdkafka's names. */
final class Security {
    private Security() {}

    /** The settings of a Java client; none without a file. */
    static Properties settings(String path) throws IOException {
        Properties given = new Properties();
        Properties settings = new Properties();
        if (path == null) {
            return settings;
        }
        for (String line : Files.readAllLines(Path.of(path))) {
            String[] pair = line.split("=", 2);
            given.setProperty(pair[0], pair[1]);
        }
        settings.put("security.protocol", given.getProperty("security.protocol"));
        addFile(settings, "ssl.truststore", given.getProperty("ssl.ca.location"));
        addFile(settings, "ssl.keystore", given.getProperty("ssl.certificate.location"));
        String mechanism = given.getProperty("sasl.mechanism");
        if (mechanism != null) {
            settings.put("sasl.mechanism", mechanism);
            if (mechanism.equals("OAUTHBEARER")) {
                addToken(settings, given.getProperty("sasl.oauthbearer.token"));
            } else {
                settings.put("sasl.jaas.config", jaas(mechanism, given));
            }
        }
        return settings;
    }

    /** Has Kafka's own handler read the token from a file, which it takes in place of an endpoint. */
    private static void addToken(Properties settings, String token) throws IOException {
        Path file = Files.createTempFile("token", ".jwt");
        file.toFile().deleteOnExit();
        Files.writeString(file, token);
        String url = file.toUri().toString();
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", file.toString());
        String oauth = "org.apache.kafka.common.security.oauthbearer.";
        settings.put("sasl.jaas.config", oauth + "OAuthBearerLoginModule required;");
        settings.put("sasl.login.callback.handler.class", oauth + "OAuthBearerLoginCallbackHandler");
        settings.put("sasl.oauthbearer.token.endpoint.url", url);
    }

    private static void addFile(Properties settings, String name, String path) {
        if (path != null) {
            settings.put(name + ".type", "PEM");
            settings.put(name + ".location", path);
        }
    }

    private static String jaas(String mechanism, Properties given) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return String.format(
                "org.apache.kafka.common.security.%s required username=\"%s\" password=\"%s\";",
                module, given.getProperty("sasl.username"), given.getProperty("sasl.password"));
    }
}
