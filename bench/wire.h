/* What the load generator sends: bytes in Kafka's order, the checksum, one batch that is encoded once, requests.
 *
 * A request is a head of its own and the records that all requests share. CRCs are linear, so the checksum of a batch
 * follows from that of the 40 bytes that change and that of the records, which is known: see struct shift.
 */
#ifndef PENSTOCK_BENCH_WIRE_H
#define PENSTOCK_BENCH_WIRE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PRODUCE = 0, FETCH = 1, METADATA = 3, OFFSET_COMMIT = 8, FIND_COORDINATOR = 10, INIT_PRODUCER_ID = 22, END_TXN = 26,
    PRODUCE_VERSION = 10, FETCH_VERSION = 12, METADATA_VERSION = 4, INIT_PRODUCER_ID_VERSION = 4,
    TRANSACTIONAL_PRODUCE_VERSION = 12, OFFSET_COMMIT_VERSION = 8, FIND_COORDINATOR_VERSION = 3, END_TXN_VERSION = 5,
    UNKNOWN_TOPIC_OR_PARTITION = 3, COORDINATOR_LOAD_IN_PROGRESS = 14, COORDINATOR_NOT_AVAILABLE = 15, NOT_COORDINATOR = 16,
    CONCURRENT_TRANSACTIONS = 51, TRANSACTIONAL = 0x10,
    BATCH_HEADER = 61, CRC_FROM = 21, CRC_AT = 17, TOPIC_MAX = 100, HEAD_MAX = 320
};

static struct {
    const char *host, *topic, *ports;
    long port, partitions, connections, inflight, batch_bytes, record_bytes, acks, idempotent;
    long total_bytes, rate, max_bytes, partition, discard, pause_ms;
    double seconds, timeout_s;
} opt = {.host = "127.0.0.1", .topic = "bench", .ports = "", .port = 9092, .partitions = 1, .connections = 1, .inflight = 1,
         .record_bytes = 100, .acks = -1, .idempotent = 1, .max_bytes = 1 << 20, .discard = 1, .timeout_s = 120};

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- bytes, big endian ------------------------------------------------------------------------------------------- */

static uint8_t *put8(uint8_t *p, uint64_t v) { *p = (uint8_t)v; return p + 1; }
static uint8_t *put16(uint8_t *p, uint64_t v) { return put8(put8(p, v >> 8), v); }
static uint8_t *put32(uint8_t *p, uint64_t v) { return put16(put16(p, v >> 16), v); }
static uint8_t *put64(uint8_t *p, uint64_t v) { return put32(put32(p, v >> 32), v); }

static uint8_t *put_uvarint(uint8_t *p, uint64_t v) {
    for (; v >= 0x80; v >>= 7) p = put8(p, v | 0x80);
    return put8(p, v);
}

static uint8_t *put_varint(uint8_t *p, int64_t v) { return put_uvarint(p, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63)); }

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t n) { memcpy(p, bytes, n); return p + n; }

static uint8_t *put_compact_string(uint8_t *p, const char *s) {
    return put_bytes(put_uvarint(p, strlen(s) + 1), s, strlen(s));
}

static uint64_t get(const uint8_t *p, int size) {
    uint64_t v = 0;
    for (int i = 0; i < size; i++) v = v << 8 | p[i];
    return v;
}

static const uint8_t *get_uvarint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; p < end && shift < 35; shift += 7) {
        *value |= (uint64_t)(*p & 0x7f) << shift;
        if (!(*p++ & 0x80)) return p;
    }
    return NULL;
}

/* ---- CRC-32C ------------------------------------------------------------------------------------------------------ */

static uint32_t crc_table[256];

static void crc_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        crc_table[i] = c;
    }
}

static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t c = ~0u;
    while (n--) c = crc_table[(c ^ *p++) & 0xff] ^ c >> 8;
    return ~c;
}

/* What n bytes after it do to a checksum: a linear map, kept as a table per byte. crc(AB) = shift(crc(A), |B|) ^ crc(B). */
struct shift { uint32_t table[4][256]; };

static uint32_t shift_by(const struct shift *s, uint32_t c) {
    return s->table[0][c & 0xff] ^ s->table[1][c >> 8 & 0xff] ^ s->table[2][c >> 16 & 0xff] ^ s->table[3][c >> 24];
}

static uint32_t apply(const uint32_t map[32], uint32_t c) {
    uint32_t result = 0;
    for (int i = 0; c; c >>= 1, i++) if (c & 1) result ^= map[i];
    return result;
}

static void shift_prepare(struct shift *s, size_t bytes) {
    uint32_t power[32], map[32], squared[32];
    for (int i = 0; i < 32; i++) { /* one zero byte, then doubled by squaring */
        uint32_t c = 1u << i;
        power[i] = crc_table[c & 0xff] ^ c >> 8;
        map[i] = c;
    }
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) for (int i = 0; i < 32; i++) map[i] = apply(power, map[i]);
        for (int i = 0; i < 32; i++) squared[i] = apply(power, power[i]);
        memcpy(power, squared, sizeof power);
    }
    for (int b = 0; b < 4; b++)
        for (uint32_t i = 0; i < 256; i++) s->table[b][i] = apply(map, i << 8 * b);
}

/* ---- the batch: its records are encoded once ---------------------------------------------------------------------- */

static struct {
    uint8_t *records; /* followed by the three empty tag sections that end a produce request */
    size_t size, size_with_tail;
    uint32_t crc;
    long count;
    struct shift after;
} batch;

static uint8_t *put_record(uint8_t *p, long delta, uint64_t *seed) {
    uint8_t inside[40], *q = inside;
    q = put_varint(put_varint(put8(q, 0), 0), delta);  /* attributes, timestamp delta, offset delta */
    q = put_varint(put_varint(q, -1), opt.record_bytes); /* no key; the value's size */
    p = put_varint(p, q - inside + opt.record_bytes + 1);
    p = put_bytes(p, inside, (size_t)(q - inside));
    for (long i = 0; i < opt.record_bytes; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        p = put8(p, 33 + (*seed >> 33) % 94);
    }
    return put8(p, 0); /* no headers */
}

static void batch_prepare(void) {
    size_t room = (size_t)(opt.batch_bytes > BATCH_HEADER ? opt.batch_bytes - BATCH_HEADER : 0);
    batch.records = malloc(room + (size_t)opt.record_bytes + 64);
    uint64_t seed = 1;
    uint8_t *p = batch.records;
    do p = put_record(p, batch.count++, &seed);
    while ((size_t)(p - batch.records) + (size_t)opt.record_bytes + 20 <= room);
    batch.size = (size_t)(p - batch.records);
    batch.size_with_tail = (size_t)(put8(put8(put8(p, 0), 0), 0) - batch.records);
    batch.crc = crc32c(batch.records, batch.size);
    shift_prepare(&batch.after, batch.size);
}

static uint8_t *put_batch_header(uint8_t *p, int attributes, int64_t producer_id, int producer_epoch, int32_t sequence) {
    uint8_t *start = p;
    int64_t time = wall_ms();
    p = put32(put64(p, 0), BATCH_HEADER - 12 + batch.size);
    p = put32(put8(put32(p, UINT32_MAX), 2), 0); /* leader epoch, magic, checksum: below */
    p = put32(put16(p, (uint64_t)attributes), (uint64_t)batch.count - 1);
    p = put64(put64(p, (uint64_t)time), (uint64_t)time);
    p = put16(put64(p, (uint64_t)producer_id), (uint64_t)producer_epoch);
    p = put32(put32(p, (uint64_t)sequence), (uint64_t)batch.count);
    put32(start + CRC_AT, shift_by(&batch.after, crc32c(start + CRC_FROM, BATCH_HEADER - CRC_FROM)) ^ batch.crc);
    return p;
}

/* ---- requests ------------------------------------------------------------------------------------------------------ */

static uint8_t *put_request_header(uint8_t *p, int key, int version, int32_t correlation) {
    return put_bytes(put32(put16(put16(p, (uint64_t)key), (uint64_t)version), (uint64_t)correlation), "\0\4load", 6);
}

/* Everything of a produce request that comes before the records; returns its size. */
static size_t write_produce(uint8_t *head, int32_t correlation, long partition, int64_t pid, int epoch, int32_t sequence) {
    uint8_t *p = put8(put_request_header(head + 4, PRODUCE, PRODUCE_VERSION, correlation), 0);
    p = put32(put16(put8(p, 0), (uint64_t)opt.acks), 30000); /* no transactional id, acks, timeout */
    p = put_compact_string(put8(p, 2), opt.topic);
    p = put_uvarint(put32(put8(p, 2), (uint64_t)partition), BATCH_HEADER + batch.size + 1);
    p = put_batch_header(p, 0, pid, epoch, sequence);
    put32(head, (size_t)(p - head) - 4 + batch.size_with_tail);
    return (size_t)(p - head);
}

/* The first batch of a transaction in its partition: with every new epoch the sequence begins anew. */
static size_t write_transactional_produce(uint8_t *head, int32_t correlation, const char *id, long partition, int64_t pid,
                                          int epoch) {
    uint8_t *p = put8(put_request_header(head + 4, PRODUCE, TRANSACTIONAL_PRODUCE_VERSION, correlation), 0);
    p = put32(put16(put_compact_string(p, id), (uint64_t)-1), 30000); /* acks=all, timeout */
    p = put_compact_string(put8(p, 2), opt.topic);
    p = put_uvarint(put32(put8(p, 2), (uint64_t)partition), BATCH_HEADER + batch.size + 1);
    p = put_batch_header(p, TRANSACTIONAL, pid, epoch, 0);
    put32(head, (size_t)(p - head) - 4 + batch.size_with_tail);
    return (size_t)(p - head);
}

static size_t write_fetch(uint8_t *head, int32_t correlation, long partition, int64_t offset) {
    uint8_t *p = put8(put_request_header(head + 4, FETCH, FETCH_VERSION, correlation), 0);
    p = put32(put32(put32(put32(p, UINT32_MAX), 500), 1), (uint64_t)opt.max_bytes); /* a consumer, wait, min, max */
    p = put32(put32(put8(p, 0), 0), UINT32_MAX);                                    /* isolation, no session */
    p = put_compact_string(put8(p, 2), opt.topic);
    p = put64(put32(put32(put8(p, 2), (uint64_t)partition), UINT32_MAX), (uint64_t)offset);
    p = put32(put64(put32(p, UINT32_MAX), UINT64_MAX), (uint64_t)opt.max_bytes);
    p = put_bytes(p, "\0\0\1\1\0", 5); /* tags, tags, nothing forgotten, no rack, tags */
    put32(head, (size_t)(p - head) - 4);
    return (size_t)(p - head);
}

static size_t finish_request(uint8_t *request, uint8_t *end) {
    put32(request, (size_t)(end - request) - 4);
    return (size_t)(end - request);
}

static size_t write_find_coordinator(uint8_t *request, const char *key, int key_type) {
    uint8_t *p = put8(put_request_header(request + 4, FIND_COORDINATOR, FIND_COORDINATOR_VERSION, 0), 0);
    return finish_request(request, put8(put8(put_compact_string(p, key), (uint64_t)key_type), 0));
}

static size_t write_init_transactional(uint8_t *request, const char *id) {
    uint8_t *p = put8(put_request_header(request + 4, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, 0), 0);
    p = put32(put_compact_string(p, id), 60000);
    return finish_request(request, put8(put16(put64(p, UINT64_MAX), UINT16_MAX), 0));
}

static size_t write_end_txn(uint8_t *request, int32_t correlation, const char *id, int64_t pid, int epoch) {
    uint8_t *p = put8(put_request_header(request + 4, END_TXN, END_TXN_VERSION, correlation), 0);
    p = put16(put64(put_compact_string(p, id), (uint64_t)pid), (uint64_t)epoch);
    return finish_request(request, put8(put8(p, 1), 0)); /* commit */
}

/* A commit from outside a group's generations, of one partition. */
static size_t write_offset_commit(uint8_t *request, int32_t correlation, const char *group, long partition, int64_t offset) {
    uint8_t *p = put8(put_request_header(request + 4, OFFSET_COMMIT, OFFSET_COMMIT_VERSION, correlation), 0);
    p = put8(put8(put32(put_compact_string(p, group), UINT32_MAX), 1), 0); /* no generation, no member, not static */
    p = put_compact_string(put8(p, 2), opt.topic);
    p = put64(put32(put8(p, 2), (uint64_t)partition), (uint64_t)offset);
    p = put8(put32(p, UINT32_MAX), 1);                            /* no leader epoch, no metadata */
    return finish_request(request, put8(put8(put8(p, 0), 0), 0)); /* tags of partition, topic, request */
}

#endif
