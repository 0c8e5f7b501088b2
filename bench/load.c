/* A load generator for any broker that speaks Kafka's protocol: `load MODE key=value …`, one JSON object on stdout.
 *
 * The broker is to be measured, not the client, so almost nothing happens here per request: the records of a batch are
 * encoded once and shared by every request; only the frame's head and the batch's header are written anew, with the next
 * sequence number of an idempotent producer (wire.h). One thread, epoll, non-blocking sockets.
 *
 *   produce   connections × inflight requests, as fast as they are answered, until total_bytes or seconds
 *   rate      `rate` requests a second over all connections, for seconds; a request's time counts from when it was due
 *   fetch     connections read their partition from its start, again and again, until total_bytes or seconds
 *   commit    and
 *   transaction   wait for each answer before they say the next thing: conversations.h
 *   first     connect, make the topic by asking for it, write one message to `partition` and each of the `partitions` after
 *             it; try again until it is acknowledged
 *
 * Every answer's correlation id and error code are looked at; the first error ends the run with exit code 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

enum { READ_BUFFER = 4096, SLOTS_MAX = 1024, IOV_SLOTS = 64, DISCARD_CHUNK = 1 << 20 };

static void fail(const char *what, long code) {
    fprintf(stderr, "load: %s (%ld)\n", what, code);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* ---- the blocking part: connect, InitProducerId, `first` ------------------------------------------------------------ */

/* The port of the broker that leads a partition: one for all of them, or one for each in turn. */
static long port_of(long partition) {
    const char *p = opt.ports;
    long count = 1;
    if (!*p) return opt.port;
    for (const char *q = p; *q; q++) count += *q == ',';
    for (long skip = partition % count; skip; p++) skip -= *p == ',';
    return strtol(p, NULL, 10);
}

static int dial(long partition) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port_of(partition))};
    if (inet_pton(AF_INET, opt.host, &to.sin_addr) != 1) fail("host must be an IPv4 address", 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct timeval limit = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

static bool write_whole(int fd, const uint8_t *p, size_t n) {
    while (n) {
        ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
        if (done <= 0) return false;
        p += done, n -= (size_t)done;
    }
    return true;
}

/* One answer, cut to the room there is; its size or -1. */
static long read_frame(int fd, uint8_t *into, size_t room) {
    uint8_t size[4];
    if (recv(fd, size, 4, MSG_WAITALL) != 4) return -1;
    size_t left = get(size, 4), kept = left < room ? left : room;
    if (kept && recv(fd, into, kept, MSG_WAITALL) != (ssize_t)kept) return -1;
    for (left -= kept; left;) {
        uint8_t waste[4096];
        ssize_t n = recv(fd, waste, left < sizeof waste ? left : sizeof waste, 0);
        if (n <= 0) return -1;
        left -= (size_t)n;
    }
    return (long)kept;
}

static void init_producer(int fd, int64_t *producer_id, int *producer_epoch) {
    for (int tries = 0; tries < 2500; tries++, sleep_ms(2)) {
        uint8_t request[64], answer[64];
        uint8_t *p = put8(put_request_header(request + 4, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, 0), 0);
        p = put8(put16(put64(put32(put8(p, 0), 60000), UINT64_MAX), UINT16_MAX), 0);
        put32(request, (size_t)(p - request) - 4);
        if (!write_whole(fd, request, (size_t)(p - request))) fail("cannot send InitProducerId", errno);
        if (read_frame(fd, answer, sizeof answer) < 21) fail("no answer to InitProducerId", errno);
        long error = (int16_t)get(answer + 9, 2);
        *producer_id = (int64_t)get(answer + 11, 8);
        *producer_epoch = (int16_t)get(answer + 19, 2);
        if (!error) return;
        if (error != COORDINATOR_LOAD_IN_PROGRESS && error != COORDINATOR_NOT_AVAILABLE) fail("InitProducerId", error);
    }
    fail("InitProducerId was refused for five seconds", 0);
}

static long produce_error(const uint8_t *answer, long size) {
    long at = 4 + 1 + 1 + (long)(1 + strlen(opt.topic)) + 1 + 4;
    return size < at + 2 ? -1000 : (int16_t)get(answer + at, 2);
}

static bool ask_for_topic(int fd) {
    uint8_t request[256], answer[64];
    uint8_t *p = put16(put32(put_request_header(request + 4, METADATA, METADATA_VERSION, 1), 1), strlen(opt.topic));
    p = put8(put_bytes(p, opt.topic, strlen(opt.topic)), 1);
    put32(request, (size_t)(p - request) - 4);
    return write_whole(fd, request, (size_t)(p - request)) && read_frame(fd, answer, sizeof answer) >= 0;
}

static long write_one(int fd, long partition) {
    uint8_t head[HEAD_MAX], answer[256];
    size_t size = write_produce(head, 2, partition, -1, -1, -1);
    if (!write_whole(fd, head, size) || !write_whole(fd, batch.records, batch.size_with_tail)) return -1000;
    return produce_error(answer, read_frame(fd, answer, sizeof answer));
}

static void run_first(uint64_t limit_ns) {
    int fd = -1;
    long partition = opt.partition, tries = 0;
    for (; now_ns() < limit_ns; tries++, sleep_ms(1)) {
        if (fd < 0) fd = dial(partition);
        if (fd < 0) continue;
        if (!ask_for_topic(fd)) close(fd), fd = -1;
        else while (partition < opt.partition + opt.partitions && write_one(fd, partition) == 0) {
            long port = port_of(partition++);
            if (port_of(partition) != port) close(fd), fd = dial(partition);
            if (fd < 0) break;
        }
        if (partition < opt.partition + opt.partitions) continue;
        printf("{\"acknowledged_at_ns\": %llu, \"tries\": %ld}\n", (unsigned long long)now_ns(), tries);
        return;
    }
    fail("no message was acknowledged in time; tries", tries);
}

/* ---- connections --------------------------------------------------------------------------------------------------- */

struct slot { uint64_t began_ns; size_t head_size, sent; int32_t correlation; uint8_t head[HEAD_MAX]; };

struct connection {
    int fd, producer_epoch;
    int64_t producer_id;
    long partition_count, partition_next, first_partition, partition_step;
    int32_t *sequences;
    struct slot *slots; /* a ring: done ≤ unsent ≤ queued */
    long done, unsent, queued, due;
    size_t have, skip;  /* bytes in the buffer; bytes still to throw away */
    uint64_t frame_left, records_left;
    int64_t offset, offset_before, high_watermark;
    bool in_records;
    uint8_t buffer[READ_BUFFER];
};

static struct {
    const char *mode;
    bool rate, fetch, stopping;
    int epoll, timer;
    long slot_count, issued, answered, due_next, retries;
    uint64_t began_ns, ended_ns, deadline_ns;
    uint64_t bytes_issued, bytes, messages, batches;
    uint32_t *latency; /* in 100 ns */
    size_t latency_room;
    uint8_t *waste;
} run;

static size_t tail_size(void) { return run.fetch ? 0 : batch.size_with_tail; }

static void connection_open(struct connection *c, long number) {
    c->fd = dial(number % opt.partitions);
    if (c->fd < 0) fail("cannot connect", errno);
    c->producer_id = -1, c->producer_epoch = -1;
    if (!run.fetch && opt.idempotent) init_producer(c->fd, &c->producer_id, &c->producer_epoch);
    c->partition_count = opt.partitions > opt.connections ? (opt.partitions - number - 1) / opt.connections + 1 : 1;
    c->first_partition = number % opt.partitions;
    c->partition_step = opt.connections;
    c->sequences = calloc((size_t)c->partition_count, sizeof *c->sequences);
    c->slots = calloc((size_t)run.slot_count, sizeof *c->slots);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    epoll_ctl(run.epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static void queue_produce(struct connection *c, struct slot *s) {
    long index = c->partition_next;
    int32_t sequence = c->producer_id < 0 ? -1 : c->sequences[index];
    c->partition_next = index + 1 == c->partition_count ? 0 : index + 1;
    s->head_size = write_produce(s->head, s->correlation, c->first_partition + index * c->partition_step, c->producer_id,
                                 c->producer_epoch, sequence);
    c->sequences[index] = (int32_t)(((uint32_t)c->sequences[index] + (uint32_t)batch.count) & 0x7fffffff);
    run.bytes_issued += BATCH_HEADER + batch.size;
}

static void queue_request(struct connection *c, uint64_t began_ns) {
    struct slot *s = &c->slots[c->queued % run.slot_count];
    s->began_ns = began_ns, s->sent = 0, s->correlation = (int32_t)c->queued;
    if (run.fetch) s->head_size = write_fetch(s->head, s->correlation, c->first_partition, c->offset);
    else queue_produce(c, s);
    c->queued++, run.issued++;
}

static void send_queued(struct connection *c) {
    while (c->unsent < c->queued) {
        struct iovec iov[2 * IOV_SLOTS];
        int n = 0;
        for (long i = c->unsent; i < c->queued && n < 2 * IOV_SLOTS; i++) {
            struct slot *s = &c->slots[i % run.slot_count];
            size_t of_tail = s->sent > s->head_size ? s->sent - s->head_size : 0;
            if (s->sent < s->head_size) iov[n++] = (struct iovec){s->head + s->sent, s->head_size - s->sent};
            if (tail_size() > of_tail) iov[n++] = (struct iovec){batch.records + of_tail, tail_size() - of_tail};
        }
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        ssize_t done = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        if (done < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (done <= 0) fail("the broker closed a connection", errno);
        for (size_t left = (size_t)done; left;) {
            struct slot *s = &c->slots[c->unsent % run.slot_count];
            size_t part = s->head_size + tail_size() - s->sent;
            if (part > left) part = left;
            s->sent += part, left -= part;
            if (s->sent == s->head_size + tail_size()) c->unsent++;
        }
    }
}

static uint64_t due_ns(long k) { return run.began_ns + (uint64_t)((double)k * 1e9 / (double)opt.rate); }

static bool may_issue(void) {
    if (run.stopping) return false;
    uint64_t so_far = run.fetch ? run.bytes : run.bytes_issued;
    if (opt.total_bytes && so_far >= (uint64_t)opt.total_bytes) run.stopping = true;
    if (opt.seconds > 0 && now_ns() >= run.deadline_ns) run.stopping = true;
    return !run.stopping;
}

/* Queue what may be sent on this connection now, and send it. */
static void pump(struct connection *c, long number) {
    if (run.rate) {
        for (; c->queued < c->due && c->queued - c->done < run.slot_count;)
            queue_request(c, due_ns(c->queued * opt.connections + number));
    } else {
        while (c->queued - c->done < opt.inflight && may_issue()) queue_request(c, now_ns());
    }
    send_queued(c);
}

/* ---- answers -------------------------------------------------------------------------------------------------------- */

static void count_answer(uint64_t began_ns) {
    uint64_t ended = now_ns(), took = (ended - began_ns) / 100;
    if ((size_t)run.answered == run.latency_room) {
        run.latency_room = run.latency_room ? run.latency_room * 2 : 1 << 16;
        run.latency = realloc(run.latency, run.latency_room * sizeof *run.latency);
    }
    run.latency[run.answered++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
    run.ended_ns = ended;
}

static void answer_complete(struct connection *c) {
    count_answer(c->slots[c->done % run.slot_count].began_ns);
    c->done++;
}

static void check_correlation(struct connection *c, const uint8_t *p) {
    if (c->done == c->queued) fail("an answer that nobody asked for", 0);
    if ((int32_t)get(p, 4) != c->slots[c->done % run.slot_count].correlation) fail("answers out of order", (long)get(p, 4));
}

/* The parsers look at `n` buffered bytes and return how many they are done with; 0: not enough yet. */
static size_t parse_produce(struct connection *c, const uint8_t *p, size_t n) {
    if (n < 4 || n < 4 + get(p, 4)) {
        if (n >= 4 && get(p, 4) > READ_BUFFER - 4) fail("a produce answer is too long", (long)get(p, 4));
        return 0;
    }
    check_correlation(c, p + 4);
    long error = produce_error(p + 4, (long)get(p, 4));
    if (error) fail("the broker refused a batch: error code", error);
    run.bytes += BATCH_HEADER + batch.size, run.messages += (uint64_t)batch.count, run.batches++;
    answer_complete(c);
    return 4 + get(p, 4);
}

static size_t parse_batch(struct connection *c, const uint8_t *p, size_t n) {
    uint64_t whole = n >= 12 ? 12 + get(p + 8, 4) : UINT64_MAX;
    if (c->records_left < BATCH_HEADER || (n >= 12 && whole > c->records_left)) { /* the cut end of the answer */
        c->skip = c->records_left;
    } else if (n < BATCH_HEADER) {
        return 0;
    } else {
        c->offset = (int64_t)get(p, 8) + (int64_t)get(p + 23, 4) + 1;
        c->skip = whole;
        run.bytes += whole, run.messages += get(p + 57, 4), run.batches++;
    }
    c->records_left -= c->skip, c->frame_left -= c->skip;
    return 0;
}

static size_t parse_fetch_head(struct connection *c, const uint8_t *p, size_t n) {
    size_t at = 4 + 4 + 1 + 4; /* size, correlation, tags, throttle time */
    size_t fixed = at + 2 + 4 + 1 + 1 + strlen(opt.topic) + 1 + 4 + 2 + 8 * 3;
    if (n < fixed + 1 + 4 + 5 && (n < 4 || n < 4 + get(p, 4))) return 0;
    check_correlation(c, p + 4);
    if (get(p + at, 2)) fail("the broker refused a fetch: error code", (int16_t)get(p + at, 2));
    if (get(p + fixed - 26, 2)) fail("the broker refused a partition: error code", (int16_t)get(p + fixed - 26, 2));
    uint64_t aborted, records;
    const uint8_t *q = get_uvarint(p + fixed, p + n, &aborted);
    if (!q || aborted > 1 || !(q = get_uvarint(q + 4, p + n, &records))) fail("cannot read a fetch answer", (long)n);
    c->records_left = records ? records - 1 : 0;
    c->frame_left = 4 + get(p, 4) - (uint64_t)(q - p);
    c->in_records = true;
    c->high_watermark = (int64_t)get(p + fixed - 24, 8);
    if (!c->records_left) fail("a fetch brought nothing from offset", (long)c->offset);
    c->offset_before = c->offset;
    return (size_t)(q - p);
}

static size_t parse_fetch(struct connection *c, const uint8_t *p, size_t n) {
    if (!c->in_records) return parse_fetch_head(c, p, n);
    if (c->records_left) return parse_batch(c, p, n);
    if (c->frame_left) {
        c->skip = c->frame_left, c->frame_left = 0;
        return 0;
    }
    if (c->offset <= c->offset_before) fail("a fetch brought no whole new batch from offset", (long)c->offset);
    if (c->offset >= c->high_watermark) c->offset = 0;
    c->in_records = false;
    answer_complete(c);
    return 0;
}

static void parse_buffered(struct connection *c) {
    size_t at = 0;
    for (;;) {
        size_t from_buffer = c->have - at < c->skip ? c->have - at : c->skip;
        at += from_buffer, c->skip -= from_buffer;
        if (c->skip) break;
        long done = c->done;
        bool in_records = c->in_records;
        size_t used = run.fetch ? parse_fetch(c, c->buffer + at, c->have - at)
                                : parse_produce(c, c->buffer + at, c->have - at);
        at += used;
        if (!used && !c->skip && done == c->done && in_records == c->in_records) break;
    }
    memmove(c->buffer, c->buffer + at, c->have -= at);
}

/* Reads until there is nothing more; returns whether a request was answered. */
static bool receive(struct connection *c) {
    long done = c->done;
    for (;;) {
        bool skipping = c->skip > 0;
        size_t want = !skipping ? READ_BUFFER - c->have : c->skip < DISCARD_CHUNK ? c->skip : DISCARD_CHUNK;
        ssize_t n = recv(c->fd, skipping ? run.waste : c->buffer + c->have, want, skipping && opt.discard ? MSG_TRUNC : 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) fail("the broker closed a connection", errno);
        if (skipping) c->skip -= (size_t)n;
        else c->have += (size_t)n;
        if (!c->skip || !skipping) parse_buffered(c);
        if (!skipping && (size_t)n < want) break;
    }
    return c->done != done;
}

/* ---- the run --------------------------------------------------------------------------------------------------------- */

static void arm_timer(void) {
    uint64_t at = due_ns(run.due_next);
    struct itimerspec t = {.it_value = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)}};
    timerfd_settime(run.timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static void release_due(struct connection *connections, long total) {
    uint64_t now = now_ns();
    for (; run.due_next < total && due_ns(run.due_next) <= now; run.due_next++) {
        long number = run.due_next % opt.connections;
        connections[number].due++;
        pump(&connections[number], number);
    }
    if (run.due_next < total) arm_timer();
}

static bool is_finished(long total) {
    if (run.rate) return run.answered == total;
    return run.stopping && run.answered == run.issued;
}

static void run_load(struct connection *connections, uint64_t limit_ns) {
    long total = run.rate ? (long)(opt.seconds * (double)opt.rate) : 0;
    run.began_ns = now_ns();
    run.deadline_ns = run.began_ns + (uint64_t)(opt.seconds * 1e9);
    if (run.rate) release_due(connections, total);
    else for (long i = 0; i < opt.connections; i++) pump(&connections[i], i);
    while (!is_finished(total)) {
        struct epoll_event events[128];
        int n = epoll_wait(run.epoll, events, 128, 1000);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                uint64_t ticks;
                if (read(run.timer, &ticks, sizeof ticks) > 0) release_due(connections, total);
                continue;
            }
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
            pump(c, c - connections);
        }
        if (now_ns() > limit_ns) fail("out of time; requests still unanswered", run.issued - run.answered);
    }
}

#include "conversations.h"

/* ---- the report ------------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile_ms(double share) {
    size_t at = (size_t)(share * (double)run.answered);
    return (double)run.latency[at < (size_t)run.answered ? at : (size_t)run.answered - 1] / 1e4;
}

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void report(double client_cpu_s) {
    if (!run.answered) fail("nothing was answered", 0);
    qsort(run.latency, (size_t)run.answered, sizeof *run.latency, by_value);
    double seconds = (double)(run.ended_ns - run.began_ns) / 1e9;
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"bytes\": %llu, \"messages\": %llu, \"batches\": %llu, "
           "\"mb_s\": %.3f, \"messages_s\": %.1f, \"requests_s\": %.1f, \"client_cpu_s\": %.4f, "
           "\"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f, \"retries\": %ld}\n",
           seconds, run.answered, (unsigned long long)run.bytes, (unsigned long long)run.messages,
           (unsigned long long)run.batches, (double)run.bytes / 1e6 / seconds, (double)run.messages / seconds,
           (double)run.answered / seconds, client_cpu_s, percentile_ms(.5), percentile_ms(.99), percentile_ms(.999),
           percentile_ms(1), run.retries);
}

static void option(const char *arg) {
    const struct { const char *name; long *number; double *real; const char **text; } known[] = {
        {"host", 0, 0, &opt.host}, {"topic", 0, 0, &opt.topic}, {"ports", 0, 0, &opt.ports}, {"port", &opt.port, 0, 0},
        {"partitions", &opt.partitions, 0, 0}, {"connections", &opt.connections, 0, 0}, {"inflight", &opt.inflight, 0, 0},
        {"batch_bytes", &opt.batch_bytes, 0, 0}, {"record_bytes", &opt.record_bytes, 0, 0}, {"acks", &opt.acks, 0, 0},
        {"idempotent", &opt.idempotent, 0, 0}, {"total_bytes", &opt.total_bytes, 0, 0}, {"rate", &opt.rate, 0, 0},
        {"max_bytes", &opt.max_bytes, 0, 0}, {"partition", &opt.partition, 0, 0}, {"discard", &opt.discard, 0, 0},
        {"pause_ms", &opt.pause_ms, 0, 0},
        {"seconds", 0, &opt.seconds, 0}, {"timeout_s", 0, &opt.timeout_s, 0}};
    const char *equals = strchr(arg, '=');
    for (size_t i = 0; equals && i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != (size_t)(equals - arg) || strncmp(known[i].name, arg, strlen(known[i].name))) continue;
        if (known[i].text) *known[i].text = equals + 1;
        else if (known[i].real) *known[i].real = strtod(equals + 1, NULL);
        else *known[i].number = strtol(equals + 1, NULL, 10);
        return;
    }
    fprintf(stderr, "load: unknown option %s\n", arg);
    exit(2);
}

static void check_options(void) {
    bool first = !strcmp(run.mode, "first");
    if (strlen(opt.topic) > TOPIC_MAX) fail("the topic's name is too long", TOPIC_MAX);
    if (opt.partitions < 1 || opt.connections < 1 || opt.inflight < 1 || opt.inflight > SLOTS_MAX || opt.record_bytes < 0)
        fail("partitions, connections, inflight (to 1024) and record_bytes are positive", 0);
    if (opt.acks != 1 && opt.acks != -1) fail("acks is 1 or -1", opt.acks);
    if (!first && opt.total_bytes <= 0 && opt.seconds <= 0) fail("total_bytes or seconds must be given", 0);
    if (opt.pause_ms && opt.connections > 1) fail("pause_ms is for one connection", opt.connections);
    if (*opt.ports && opt.partitions > opt.connections && strcmp(run.mode, "first"))
        fail("with ports there must be a connection for each partition", opt.partitions);
    if (run.rate && (opt.rate < 1 || opt.seconds <= 0)) fail("rate needs rate and seconds", opt.rate);
}

int main(int argc, char **argv) {
    run.mode = argc > 1 ? argv[1] : "";
    run.rate = !strcmp(run.mode, "rate"), run.fetch = !strcmp(run.mode, "fetch");
    bool talking = !strcmp(run.mode, "commit") || !strcmp(run.mode, "transaction");
    if (!run.rate && !run.fetch && !talking && strcmp(run.mode, "produce") && strcmp(run.mode, "first")) {
        fprintf(stderr, "usage: load produce|rate|fetch|commit|transaction|first key=value …\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) option(argv[i]);
    check_options();
    crc_prepare();
    batch_prepare();
    uint64_t limit_ns = now_ns() + (uint64_t)(opt.timeout_s * 1e9);
    if (!strcmp(run.mode, "first")) return run_first(limit_ns), 0;

    prctl(PR_SET_TIMERSLACK, 1);
    run.epoll = epoll_create1(EPOLL_CLOEXEC);
    run.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    run.slot_count = run.rate ? SLOTS_MAX : run.fetch ? 1 : opt.inflight;
    if (run.fetch) opt.inflight = 1; /* the next offset is in the answer */
    run.waste = malloc(DISCARD_CHUNK);
    epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.timer, &(struct epoll_event){.events = EPOLLIN, .data.ptr = NULL});
    struct talk *talks = talking ? talks_open() : NULL;
    struct connection *connections = calloc((size_t)opt.connections, sizeof *connections);
    for (long i = 0; i < opt.connections && !talking; i++) connection_open(&connections[i], i);
    double cpu_before_s = cpu_s();
    if (talking) talks_run(talks, limit_ns);
    else run_load(connections, limit_ns);
    report(cpu_s() - cpu_before_s);
    return 0;
}
