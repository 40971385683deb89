/* One transactional id of the first generation (its epoch stays), one partition of its transactions, and the coordinator's log.
   Which rules keep a decision, its markers and the partition's open transaction together?
   NUMBERS  1: marker, and its answer, carry the number of the transaction; the leader appends none at or below its last one
   HW       1: only records below the high watermark are answered from, or cause markers
            0: as Kafka: a coordinator that is elected acts on all that it finds in its log
   GUARD    0: a batch opens a transaction unasked  1: the coordinator is asked, and its answer counts whenever it comes
            2: as 1, and it counts only if no marker has come since the question
   MOVES    how often the coordinator may move; what was not committed in its log may then be lost, from any record on
   Network: what was sent once may arrive at any later time, any number of times (markers, their answers, batches).
   Each step of the loop is one atomic step of client, coordinator or leader. Transactions are numbered from 1. */
#ifndef NUMBERS
#define NUMBERS 1
#endif
#ifndef HW
#define HW 1
#endif
#ifndef GUARD
#define GUARD 2
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef TXNS
#define TXNS 2
#endif
/* WATCH   0: all assertions  1: a marker ends its own transaction only  2: what was answered, or read, is what is decided
           3: no transaction stays open that no one will end */
#ifndef WATCH
#define WATCH 0
#endif
#define watch(w, what) assert((what) || (WATCH != 0 && WATCH != w))
#define NT (TXNS + 1)
#define EMPTY 0
#define ONGOING 1
#define COMMITS 2       /* Prepare */
#define ABORTS 3
#define COMPLETE 4
#define NONE 0

/* the log of the id: its committed record, and at most three above the high watermark, of which the first `seen` are acted on */
byte st = EMPTY, n = 0;
byte u_st[3], u_n[3];
byte u = 0, seen = 0, moves = 0;
#define busy (u > seen)
byte a_st = EMPTY, a_n = 0;        /* what is acted on */

/* decisions: which one is committed, told to the client, in the partition; NONE, COMMITS or ABORTS, by transaction */
byte decided[NT], told[NT], marked[NT];

/* the network, which forgets nothing */
bool marker_c[NT], marker_a[NT], answered[NT], batch[NT];

/* the leader of the partition */
byte open = 0;                     /* the transaction that is open */
byte last = 0;                     /* the number of the last marker */
byte markers = 0;                  /* markers appended, up to 3: "one has come since" without numbers */
byte asking = 0, asked_at = 0, asked_last = 0, yes = 0; /* a question about the batch of transaction `asking` */

/* the client */
byte t = 1;
bool has_added = false;

inline act() {                     /* what the coordinator acts on */
  if :: seen == 0 -> a_st = st; a_n = n :: else -> a_st = u_st[seen - 1]; a_n = u_n[seen - 1] fi
}
inline append(s, k) { u_st[u] = s; u_n[u] = k; u++ }
inline check_open() {              /* some record says that the open transaction will be ended */
  watch(3, open == 0 || (n == open && st != COMPLETE)
        || (u > 0 && u_n[0] == open && u_st[0] != COMPLETE) || (u > 1 && u_n[1] == open && u_st[1] != COMPLETE)
        || (u > 2 && u_n[2] == open && u_st[2] != COMPLETE))
}
inline commit_one() {
  st = u_st[0]; n = u_n[0];
  u_st[0] = u_st[1]; u_n[0] = u_n[1]; u_st[1] = u_st[2]; u_n[1] = u_n[2]; u_st[2] = 0; u_n[2] = 0;
  u--;
  if :: seen > 0 -> seen-- :: else -> skip fi;
  if :: st == COMMITS || st == ABORTS ->
        watch(2, told[n] == NONE || told[n] == st);      /* what the client was answered holds */
        watch(2, marked[n] == NONE || marked[n] == st);  /* and so does what readers have seen */
        decided[n] = st
     :: st == COMPLETE -> watch(3, open != n)           /* no transaction stays open that no one will end */
     :: else -> skip fi;
  act()
}
inline apply_marker(k, kind) {
  if :: NUMBERS && k <= last -> answered[k] = true       /* a copy */
     :: else ->
        watch(1, open == 0 || open == k);                /* a marker ends its own transaction only */
        watch(2, decided[k] == NONE || decided[k] == kind);
        open = 0; marked[k] = kind; answered[k] = true;
        if :: k > last -> last = k :: else -> skip fi;
        if :: markers < 3 -> markers++ :: else -> skip fi
  fi
}

inline select_txn(k) { k = 1; do :: k < TXNS -> k++ :: break od }

init {
  byte k = 0;
  do
  /* --- the client */
  :: atomic { t <= TXNS && !has_added && !busy && u < 3 && (a_st == EMPTY || a_st == COMPLETE) && a_n == t - 1 -> append(ONGOING, t) }
  :: atomic { t <= TXNS && !has_added && !busy && a_st == ONGOING && a_n == t -> has_added = true }
  :: atomic { t <= TXNS && has_added && !batch[t] -> batch[t] = true }
  :: atomic { t <= TXNS && has_added && !busy && u < 3 && a_st == ONGOING && a_n == t -> append(COMMITS, t) }
  :: atomic { t <= TXNS && has_added && !busy && u < 3 && a_st == ONGOING && a_n == t -> append(ABORTS, t) }
  :: atomic { t <= TXNS && has_added && !busy && a_n == t && (a_st == COMMITS || a_st == ABORTS) && told[t] == NONE ->
              told[t] = a_st; t++; has_added = false }
  :: atomic { t <= TXNS && has_added && !busy && a_n == t && a_st == COMPLETE && told[t] == NONE -> t++; has_added = false }
  /* --- the coordinator: its timeout, commits, markers, completion, moves */
  :: atomic { !busy && u < 3 && a_st == ONGOING -> append(ABORTS, a_n) }
  :: atomic { u > 0 -> commit_one() }
  :: atomic { !busy && a_st == COMMITS && !marker_c[a_n] -> marker_c[a_n] = true }
  :: atomic { !busy && a_st == ABORTS && !marker_a[a_n] -> marker_a[a_n] = true }
  :: atomic { !busy && u < 3 && (a_st == COMMITS || a_st == ABORTS) && (answered[a_n] || (!NUMBERS && answered[1])) ->
              append(COMPLETE, a_n) }
  :: atomic { moves < MOVES -> moves++;
              do :: u > 0 -> u--; u_st[u] = 0; u_n[u] = 0 :: break od;
              if :: HW -> seen = 0 :: else -> seen = u fi;
              act(); check_open() }
  /* --- the leader */
  :: atomic { select_txn(k); if :: marker_c[k] -> apply_marker(k, COMMITS) :: else -> skip fi; k = 0 }
  :: atomic { select_txn(k); if :: marker_a[k] -> apply_marker(k, ABORTS) :: else -> skip fi; k = 0 }
  :: atomic { open == 0 && GUARD == 0; select_txn(k); if :: batch[k] -> open = k; check_open() :: else -> skip fi; k = 0 }
  :: atomic { open == 0 && GUARD > 0 && asking == 0 && batch[1] ->
              asking = 1; asked_last = last; asked_at = markers; yes = 0 }
  :: atomic { asking == 1 && !busy && a_st == ONGOING -> asking = 2; yes = a_n }
  :: atomic { asking == 1 && !busy && a_st != ONGOING -> asking = 0 }
  :: atomic { asking == 2 ->
              asking = 0; k = yes; yes = 0;
              if :: open != 0 -> skip
                 :: open == 0 && GUARD == 2 && (asked_at != markers || asked_last != last || (NUMBERS && k <= last)) -> skip
                 :: else -> open = k; check_open()
              fi; k = 0; asked_last = 0; asked_at = 0 }
  od
}
