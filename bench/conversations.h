/* Clients that wait for each answer before they say the next thing: offset commits and transactions.
 *
 *   commit        each connection commits the offset of one partition for a group of its own, again and again
 *   transaction   each connection is a transactional producer: one message, commit, next; what is timed is the whole of it
 *
 * Groups and transactional ids are called after the topic and the number of the connection. A transaction is done as the
 * newest clients do it: no AddPartitionsToTxn, and the answer to EndTxn brings the epoch of the next transaction. While the
 * coordinator is still busy with the one before, it may say so and is asked again at once; `retries` counts that. A single
 * client can rest for pause_ms after each round, so that nothing is left over from the one before.
 */
#ifndef PENSTOCK_BENCH_CONVERSATIONS_H
#define PENSTOCK_BENCH_CONVERSATIONS_H

enum { GROUP_KEY = 0, TRANSACTION_KEY = 1, ANSWER_MAX = 1024, REQUEST_MAX = 768, NAME_MAX_BYTES = TOPIC_MAX + 24 };
enum step { COMMIT_OFFSET, WRITE, END };

struct talk {
    int fd, producer_epoch;
    int64_t producer_id, offset;
    long partition;
    enum step step;
    int32_t correlation;
    uint64_t began_ns;
    size_t have;
    char name[NAME_MAX_BYTES];
    uint8_t answer[ANSWER_MAX];
};

static bool settles_soon(long error) {
    return error == COORDINATOR_LOAD_IN_PROGRESS || error == COORDINATOR_NOT_AVAILABLE || error == NOT_COORDINATOR ||
           error == CONCURRENT_TRANSACTIONS || error == UNKNOWN_TOPIC_OR_PARTITION;
}

static size_t talk_write(struct talk *t, uint8_t *request) {
    switch (t->step) {
    case COMMIT_OFFSET: return write_offset_commit(request, t->correlation, t->name, t->partition, t->offset);
    case WRITE:
        return write_transactional_produce(request, t->correlation, t->name, t->partition, t->producer_id, t->producer_epoch);
    default: return write_end_txn(request, t->correlation, t->name, t->producer_id, t->producer_epoch);
    }
}

static void talk_send(struct talk *t) {
    uint8_t request[REQUEST_MAX];
    t->correlation++;
    size_t size = talk_write(t, request), tail = t->step == WRITE ? batch.size_with_tail : 0;
    struct iovec iov[2] = {{request, size}, {batch.records, tail}};
    ssize_t done = sendmsg(t->fd, &(struct msghdr){.msg_iov = iov, .msg_iovlen = 2}, MSG_NOSIGNAL);
    if (done == (ssize_t)(size + tail)) return;
    if (done < (ssize_t)size || !write_whole(t->fd, batch.records + done - size, size + tail - (size_t)done))
        fail("the broker closed a connection", errno);
}

static long talk_error(const struct talk *t, const uint8_t *answer, long size) {
    if (t->step == WRITE) return produce_error(answer, size);
    long at = t->step == COMMIT_OFFSET ? 4 + 1 + 4 + 1 + (long)(1 + strlen(opt.topic)) + 1 + 4 : 4 + 1 + 4;
    return size < at + 2 ? -1000 : (int16_t)get(answer + at, 2);
}

static void talk_complete(struct talk *t) {
    count_answer(t->began_ns);
    if (opt.pause_ms) sleep_ms(opt.pause_ms);
    t->began_ns = now_ns();
}

/* One answer: the next step, the same one again, or the beginning of the next round. */
static void talk_on(struct talk *t, const uint8_t *answer, long size) {
    if ((int32_t)get(answer, 4) != t->correlation) fail("an answer that nobody asked for", (long)get(answer, 4));
    long error = talk_error(t, answer, size);
    if (error == CONCURRENT_TRANSACTIONS) run.retries++;
    else if (error) fail("the broker refused: error code", error);
    else if (t->step == WRITE) t->step = END, run.bytes += BATCH_HEADER + batch.size, run.messages += (uint64_t)batch.count;
    else {
        if (t->step == END) {
            t->producer_id = (int64_t)get(answer + 11, 8), t->producer_epoch = (int16_t)get(answer + 19, 2);
            t->step = WRITE;
        }
        t->offset++;
        talk_complete(t);
        if (!may_issue()) return;
        run.issued++;
    }
    talk_send(t);
}

static void talk_receive(struct talk *t) {
    ssize_t n = recv(t->fd, t->answer + t->have, ANSWER_MAX - t->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) fail("the broker closed a connection", errno);
    t->have += (size_t)n;
    if (t->have < 4 || t->have < 4 + get(t->answer, 4)) {
        if (t->have == ANSWER_MAX) fail("an answer is too long", (long)get(t->answer, 4));
        return;
    }
    if (t->have > 4 + get(t->answer, 4)) fail("more than one answer to one request", (long)t->have);
    long size = (long)t->have - 4;
    t->have = 0;
    talk_on(t, t->answer + 4, size);
}

/* ---- before the time counts: coordinators found, producer ids and a first commit got ------------------------------- */

static long ask(struct talk *t, uint8_t *request, size_t size, long error_at) {
    long got = write_whole(t->fd, request, size) ? read_frame(t->fd, t->answer, ANSWER_MAX) : -1;
    if (got < error_at + 2) fail("no answer", errno);
    return (int16_t)get(t->answer + error_at, 2);
}

static void until_settled(struct talk *t, const char *what, size_t (*write)(struct talk *, uint8_t *), long error_at) {
    long error = 0;
    for (int tries = 0; tries < 5000; tries++, sleep_ms(2)) {
        uint8_t request[REQUEST_MAX];
        error = ask(t, request, write(t, request), error_at);
        if (!error) return;
        if (!settles_soon(error)) break;
    }
    fail(what, error);
}

static size_t talk_find(struct talk *t, uint8_t *request) {
    return write_find_coordinator(request, t->name, t->step == COMMIT_OFFSET ? GROUP_KEY : TRANSACTION_KEY);
}

static size_t talk_init(struct talk *t, uint8_t *request) { return write_init_transactional(request, t->name); }

static void talk_open(struct talk *t, long number) {
    t->fd = dial(number % opt.partitions);
    if (t->fd < 0) fail("cannot connect", errno);
    snprintf(t->name, sizeof t->name, "%s-%ld", opt.topic, number);
    t->partition = number % opt.partitions;
    t->step = strcmp(run.mode, "commit") ? WRITE : COMMIT_OFFSET;
    until_settled(t, "FindCoordinator", talk_find, 9);
    if (t->step == COMMIT_OFFSET) {
        until_settled(t, "OffsetCommit", talk_write, 4 + 1 + 4 + 1 + (long)(1 + strlen(opt.topic)) + 1 + 4);
    } else {
        until_settled(t, "InitProducerId", talk_init, 9);
        t->producer_id = (int64_t)get(t->answer + 11, 8), t->producer_epoch = (int16_t)get(t->answer + 19, 2);
    }
    epoll_ctl(run.epoll, EPOLL_CTL_ADD, t->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = t});
}

static struct talk *talks_open(void) {
    struct talk *talks = calloc((size_t)opt.connections, sizeof *talks);
    for (long i = 0; i < opt.connections; i++) talk_open(&talks[i], i);
    return talks;
}

static void talks_run(struct talk *talks, uint64_t limit_ns) {
    run.began_ns = now_ns();
    run.deadline_ns = run.began_ns + (uint64_t)(opt.seconds * 1e9);
    for (long i = 0; i < opt.connections; i++, run.issued++) talks[i].began_ns = now_ns(), talk_send(&talks[i]);
    while (run.answered < run.issued) {
        struct epoll_event events[128];
        int n = epoll_wait(run.epoll, events, 128, 1000);
        for (int i = 0; i < n; i++) talk_receive(events[i].data.ptr);
        if (now_ns() > limit_ns) fail("out of time; still unanswered", run.issued - run.answered);
    }
}

#endif
