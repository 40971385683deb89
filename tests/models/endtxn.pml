/* Delayed EndTxn of T1 against T2: which broker rules stop it?
   TV2    1: epoch+1 at each end (KIP-890 part 2); 0: one epoch (librdkafka, aiokafka, Java 3.9)
   RULE   0: none (Kafka)  1: connection order, remembered per coordinator term
          2: as 1, and connections accepted before this term's election count as old  3: the latter alone
   MOVES  how often the coordinator may move between brokers 0 and 1 (state is replicated, connection memory is not)
   Network: each connection is FIFO, connections are independent; a request on a connection lies there for any time.
   The tag t of a request is for the assertion only; the broker never looks at it. */
#ifndef TV2
#define TV2 0
#endif
#ifndef RULE
#define RULE 0
#endif
#ifndef MOVES
#define MOVES 0
#endif
#ifndef NC
#define NC 5            /* connections in all, at most 5 */
#endif
mtype = { Add, End };
mtype = { Empty, Ongoing, Complete };
typedef Conn { byte broker; byte nr; bool open };
Conn c[NC]; byte used = 0;
chan req[NC] = [2] of { mtype, byte /*epoch*/, byte /*t*/ };
byte got = 99, got_code = 0, got_e = 0;   /* the answer on the connection the client waits on; others are lost */
byte coord = 0, moves = 0;
byte accepted[2];        /* connections accepted so far, per broker */
byte elected_at[2];      /* accepted[] of that broker when it was elected last */
byte newest = 0;         /* connection memory of the present coordinator, 0 = none */
mtype st = Empty; byte epoch = 0; byte cur = 0;
byte waiting = 99;       /* connection on which the client waits; answers elsewhere are lost */
bool finished = false;

inline open_conn(k) {
  if :: atomic { used < NC -> k = used; used++; c[k].broker = coord; accepted[coord]++; c[k].nr = accepted[coord]; c[k].open = true }
     :: used >= NC -> goto out fi
}
inline reply(k, cd) { if :: waiting == k -> got = k; got_code = cd; got_e = epoch :: else -> skip fi }

proctype Client() {
  byte k, t = 1, e = 0, code, ge; mtype what;
  open_conn(k); waiting = k;
  do
  :: t > 2 -> break
  :: else ->
     what = Add;
again_add:
     req[k]!Add,e,t;
     if :: atomic { got == k -> code = got_code; ge = got_e; got = 99 }
        :: atomic { true -> got = 99; open_conn(k); waiting = k }; goto again_add       /* timeout or cut: new connection, same request */
     fi;
     if :: code == 0 -> skip :: code == 3 -> open_conn(k); waiting = k; goto again_add :: else -> goto out fi;
again_end:
     req[k]!End,e,t;
     if :: atomic { got == k -> code = got_code; ge = got_e; got = 99 }
        :: atomic { true -> got = 99; open_conn(k); waiting = k }; goto again_end
     fi;
     if :: code == 0 -> skip :: code == 3 -> open_conn(k); waiting = k; goto again_end :: else -> goto out fi;
     if :: TV2 -> e = ge :: else -> skip fi;
     t++
  od;
out: finished = true; waiting = 99
}

inline too_old(k, b) { /* b: result */
  b = false;
  if :: (RULE == 1 || RULE == 2) && newest != 0 && c[k].nr < newest -> b = true :: else -> skip fi;
  if :: RULE >= 2 && c[k].nr <= elected_at[coord] -> b = true :: else -> skip fi
}
proctype Broker() {
  byte k, e, t; mtype m; bool old;
end_idle:
  do
  :: atomic { moves < MOVES -> moves++; coord = 1 - coord; newest = 0; elected_at[coord] = accepted[coord] }
  :: nempty(req[0]) && c[0].open -> k = 0; goto serve
  :: nempty(req[1]) && c[1].open -> k = 1; goto serve
  :: nempty(req[2]) && c[2].open -> k = 2; goto serve
#if NC > 3
  :: nempty(req[3]) && c[3].open -> k = 3; goto serve
#endif
#if NC > 4
  :: nempty(req[4]) && c[4].open -> k = 4; goto serve
#endif
  od;
serve: atomic {
        req[k]?m,e,t;
        if
        :: c[k].broker != coord -> reply(k, 3)                       /* NOT_COORDINATOR */
        :: else ->
           too_old(k, old);
           if
           :: old -> c[k].open = false; reply(k, 3)                  /* closed, no effect */
           :: else ->
              newest = c[k].nr;
              if
              :: m == Add ->
                 if :: e != epoch -> reply(k, 1)
                    :: else -> if :: st != Ongoing -> st = Ongoing; cur = t :: else -> if :: t > cur -> cur = t :: else -> skip fi fi; reply(k, 0) fi
              :: m == End ->
                 if
                 :: st == Ongoing && e == epoch ->
                    assert(t >= cur);                                /* an EndTxn of T1 never ends what T2 has joined */
                    st = Complete; if :: TV2 -> epoch++ :: else -> skip fi; reply(k, 0)
                 :: st == Complete && (TV2 -> e + 1 == epoch : e == epoch) -> reply(k, 0)
                 :: else -> reply(k, 1)
                 fi
              fi
           fi
        fi };
     goto end_idle
}
init { atomic { elected_at[0] = 0; run Client(); run Broker() } }
