/* SPDX-License-Identifier: MIT */
/* Data by messages, in rounds of a chunk of each stream. Reduce: every rank sends each owner its
 * chunk of the owner's stream, and the owner reduces what it got, in rank order. Exchange: every
 * rank sends each other rank a chunk of what is for it, or of one stream that is for all. In a step
 * the owner updates the values of a chunk once it is reduced, or as it sends them, and the exchange
 * carries the new values. Some rounds are under way at once. */
#include "base/status.h"
#include "engine/engine.h"

/* The first rounds are added up, and what becomes of them travels, while the chunks of the next are
 * on their way. More small ones keep a link busier than few large ones. */
typedef enum phase { FREE, REDUCES, EXCHANGES } phase;

/* What goes between this rank and another in a round. Its own: where what it keeps, or its results,
 * go. */
typedef struct parcel {
    cz__chunk received; /* 0 bytes: none */
    cz__request send, receive;
} parcel;

/* Where in the streams to another rank and from it we are. */
typedef struct peer {
    cz__cursor out, in;
} peer;

typedef struct messages {
    bool begun;                     /* it has staging memory, and the cursors are set */
    size_t slot_bytes, chunk_bytes; /* with terms a slot has several chunks */
    int rounds_most;                /* 1 … CZ__ROUNDS: there is staging memory for so many */
    phase rounds[CZ__ROUNDS];
    int next_round;         /* which of them is opened next; the oldest */
    bool all_opened;        /* the streams have ended */
    cz__cursor own, result; /* in its stream: what an exchange takes, and where a sum goes, next */
    /* What this rank gives of its own stream in a round; 0 bytes: none. */
    cz__chunk kept[CZ__ROUNDS];
    parcel *parcels;      /* of round k and rank r: [k * group->size + r] */
    const void **sources; /* group->size addresses */
    peer peers[];         /* group->size; then what the last two point to */
} messages;

static messages *messages_of(const cz_work *work)
{
    return work->data.state;
}

static parcel *parcel_of(const cz_work *work, int round, int rank)
{
    return &messages_of(work)->parcels[round * work->group->size + rank];
}

/* ---- chunks ---- */

static char *slot(const cz_work *work, int round, int index)
{
    const int slots = 2 * work->group->size + 1;
    return work->staging.block->data +
           (size_t)(round * slots + index) * messages_of(work)->slot_bytes;
}

/* The chunk as one piece: in place, or packed into a slot. */
static void *packed(cz_work *work, int round, const cz__region *region, const cz__chunk *chunk,
                    int index)
{
    if (chunk->data)
        return chunk->data;
    cz__chunk_pack(region, chunk, work->group->device, slot(work, round, index));
    return slot(work, round, index);
}

static bool next_chunk(const cz_work *work, const cz__region *region, cz__cursor *cursor,
                       cz__chunk *chunk)
{
    return cz__chunk_next(region, cursor, messages_of(work)->chunk_bytes, chunk);
}

static cz_status send(cz_work *work, int round, unsigned step, int rank, void *data, size_t bytes)
{
    cz__request *request = &parcel_of(work, round, rank)->send;
    return rank == work->group->rank ? CZ_OK
                                     : cz__request_send(work, request, rank, step, data, bytes);
}

static cz_status receive(cz_work *work, int round, unsigned step, int rank, void *data,
                         size_t bytes)
{
    cz__request *request = &parcel_of(work, round, rank)->receive;
    return rank == work->group->rank ? CZ_OK
                                     : cz__request_receive(work, request, rank, step, data, bytes);
}

/* ---- reduce: this rank's own parcel has where its results go as what it receives ---- */

/* What this rank gives of a chunk, in one piece; *bytes: of all its terms. */
static void *given(cz_work *work, int round, const cz__chunk *chunk, int index, size_t *bytes)
{
    const cz__region *source = &work->operation.source;
    const cz__region first = cz__region_of_term(source, 0);
    const cz__chunk its = cz__chunk_of_term(&first, chunk);
    const int terms = cz__region_terms(source, work->group->rank);
    *bytes = cz__terms_bytes(terms, chunk->bytes);
    if (terms == 1)
        return packed(work, round, &first, &its, index);
    cz__terms_pack(source, chunk, work->group->device, slot(work, round, index));
    return slot(work, round, index);
}

static cz_status open_reduce(cz_work *work, int round, bool *any)
{
    messages *m = messages_of(work);
    const int size = work->group->size, me = work->group->rank;
    const cz__region *source = &work->operation.source;
    cz__chunk *own = &m->kept[round];
    *any = false;
    for (int r = 0; r < size; r++) {
        cz__chunk other = {0}, *sent = r == me ? own : &other;
        if (!next_chunk(work, source, &m->peers[r].out, sent))
            continue;
        *any = true;
        if (r == me)
            continue;
        size_t bytes;
        void *data = given(work, round, sent, r, &bytes);
        CZ_TRY(send(work, round, CZ__STEP_REDUCE, r, data, bytes));
    }
    next_chunk(work, &work->operation.target, &m->result, &parcel_of(work, round, me)->received);
    for (int r = 0; r < size && own->bytes > 0; r++)
        CZ_TRY(receive(work, round, CZ__STEP_REDUCE, r, slot(work, round, size + r),
                       cz__terms_bytes(cz__region_terms(source, r), own->bytes)));
    return CZ_OK;
}

static cz_status close_reduce(cz_work *work, int round)
{
    messages *m = messages_of(work);
    const int size = work->group->size, me = work->group->rank;
    const cz__operation *operation = &work->operation;
    const cz__chunk *own = &m->kept[round], *target = &parcel_of(work, round, me)->received;
    if (own->bytes == 0)
        return CZ_OK;
    const void **sources = cz__region_sources(&operation->source, m->sources);
    for (int r = 0; r < size; r++) {
        size_t bytes;
        const char *its =
            r == me ? given(work, round, own, me, &bytes) : slot(work, round, size + r);
        cz__terms_place(&operation->source, r, its, own->bytes, sources);
    }
    char *result = target->data ? target->data : slot(work, round, 2 * size);
    CZ_TRY(work->group->device->reduce(
        NULL, (cz_dtype)operation->header.dtype, (cz_reduction)operation->header.reduction,
        cz__region_source_count(&operation->source), sources,
        (int64_t)(own->bytes / operation->source.element_size), operation->result, result));
    if (!target->data)
        cz__chunk_unpack(&operation->target, target, work->group->device, result);
    if (operation->update)
        cz__update_chunk(operation, target, result);
    return CZ_OK;
}

/* ---- exchange ---- */

/* What goes to each rank; where it is the same for all, it is cut and packed once. */
static cz_status send_chunks(cz_work *work, int round, bool *any)
{
    messages *m = messages_of(work);
    const cz__operation *operation = &work->operation;
    const cz__region *source = cz__region_given(operation);
    const int me = work->group->rank;
    cz__chunk *own = &m->kept[round];
    void *data = NULL;
    if (next_chunk(work, source, &m->own, own)) {
        *any = true;
        if (operation->update && !operation->reduces)
            cz__update_chunk(operation, own, NULL);
        data = operation->same_to_all ? packed(work, round, source, own, me) : NULL;
    }
    for (int r = 0; r < work->group->size; r++) {
        cz__chunk sent = *own;
        if (r == me)
            continue;
        if (!operation->same_to_all && next_chunk(work, source, &m->peers[r].out, &sent))
            data = packed(work, round, source, &sent, r);
        *any |= sent.bytes > 0;
        if (sent.bytes > 0)
            CZ_TRY(
                send(work, round, CZ__STEP_EXCHANGE, r, data, cz__bytes_here(source, sent.bytes)));
    }
    return CZ_OK;
}

static cz_status open_exchange(cz_work *work, int round, bool *any)
{
    const int size = work->group->size;
    const cz__region *target = cz__region_taken(&work->operation);
    *any = false;
    for (int r = 0; r < size;
         r++) { /* receives first: then a send can go where it belongs at once */
        cz__chunk *received = &parcel_of(work, round, r)->received;
        if (!next_chunk(work, target, &messages_of(work)->peers[r].in, received))
            continue;
        *any = true;
        const bool in_place = received->data && !work->operation.shared_values;
        CZ_TRY(receive(work, round, CZ__STEP_EXCHANGE, r,
                       in_place ? received->data : slot(work, round, size + r),
                       cz__bytes_here(target, received->bytes)));
    }
    return send_chunks(work, round, any);
}

/* What this rank keeps for itself. */
static void keep_own(cz_work *work, int round)
{
    const cz__operation *operation = &work->operation;
    const int me = work->group->rank;
    const cz__chunk *sent = &messages_of(work)->kept[round],
                    *received = &parcel_of(work, round, me)->received;
    if (received->bytes == 0 || operation->update || operation->reduces ||
        cz__region_same_memory(&operation->source, &operation->target) ||
        (sent->data && sent->data == received->data))
        return;
    const char *from = packed(work, round, &operation->source, sent, me);
    if (received->data)
        (void)work->group->device->copy(NULL, received->data, from, received->bytes);
    else
        cz__chunk_unpack(&operation->target, received, work->group->device, from);
}

static void close_exchange(cz_work *work, int round)
{
    const int size = work->group->size;
    keep_own(work, round);
    for (int r = 0; r < size; r++) {
        const cz__chunk *chunk = &parcel_of(work, round, r)->received;
        if (r != work->group->rank && chunk->bytes > 0 && !chunk->data &&
            !work->operation.shared_values)
            cz__chunk_unpack(cz__region_taken(&work->operation), chunk, work->group->device,
                             slot(work, round, size + r));
    }
}

/* ---- rounds ---- */

static void set_cursors(cz_work *work)
{
    messages *m = messages_of(work);
    const cz__operation *operation = &work->operation;
    const cz__region *given = cz__region_given(operation);
    const int me = work->group->rank;
    for (int r = 0; r < work->group->size; r++) {
        cz__cursor_begin(operation->reduces ? &operation->source : given, r, &m->peers[r].out);
        cz__cursor_begin(cz__region_taken(operation), r, &m->peers[r].in);
    }
    cz__cursor_begin(given, me, &m->own);
    cz__cursor_begin(&operation->target, me, &m->result);
    m->all_opened = !operation->reduces && !operation->exchanges;
}

/* The streams of a reduction and of the exchange after it have the same rounds. */
static cz_status open_round(cz_work *work, bool *moved)
{
    messages *m = messages_of(work);
    const int round = m->next_round;
    const bool reduces = work->operation.reduces;
    bool any;
    if (m->all_opened || m->rounds[round] != FREE)
        return CZ_OK;
    CZ_TRY(reduces ? open_reduce(work, round, &any) : open_exchange(work, round, &any));
    *moved = true;
    m->all_opened = !any;
    if (!any)
        return CZ_OK;
    m->rounds[round] = reduces ? REDUCES : EXCHANGES;
    m->next_round = (round + 1) % m->rounds_most;
    return CZ_OK;
}

/* All of it has landed. */
static cz_status close_round(cz_work *work, int round)
{
    messages *m = messages_of(work);
    bool any;
    if (m->rounds[round] == EXCHANGES) {
        close_exchange(work, round);
        m->rounds[round] = FREE;
        return CZ_OK;
    }
    CZ_TRY(close_reduce(work, round));
    m->rounds[round] = FREE;
    if (!work->operation.exchanges)
        return CZ_OK;
    m->rounds[round] = EXCHANGES;
    return open_exchange(work, round, &any);
}

/* The sends to and receives from all ranks. */
static cz_status has_landed(cz_work *work, int round, bool *all)
{
    *all = true;
    for (int r = 0; r < work->group->size && *all; r++) {
        parcel *with = parcel_of(work, round, r);
        CZ_TRY(cz__request_landed(work, &with->send, all));
        if (*all)
            CZ_TRY(cz__request_landed(work, &with->receive, all));
    }
    return CZ_OK;
}

/* The oldest first, and what is done with a round not before it was done with those. */
static cz_status move_rounds(cz_work *work, bool *moved)
{
    messages *m = messages_of(work);
    phase before = FREE;
    for (int i = 0; i < m->rounds_most; i++) {
        const int round = (m->next_round + i) % m->rounds_most;
        bool landed = false;
        if (m->rounds[round] == FREE || m->rounds[round] == before)
            continue;
        CZ_TRY(has_landed(work, round, &landed));
        if (landed) {
            CZ_TRY(close_round(work, round));
            *moved = true;
        }
        before = m->rounds[round];
    }
    return CZ_OK;
}

static bool is_over(const cz_work *work)
{
    messages *m = messages_of(work);
    bool over = m->all_opened;
    for (int i = 0; i < m->rounds_most; i++)
        over = over && m->rounds[i] == FREE;
    return over;
}

/* ---- the engine ---- */

static size_t bytes(int size, bool in_process)
{
    const size_t each = sizeof(peer) + CZ__ROUNDS * sizeof(parcel) + sizeof(void *);
    return in_process ? 0 : sizeof(messages) + (size_t)size * each;
}

static bool takes(const cz_work *work)
{
    return true;
}

static void begin(cz_work *work)
{
    messages *m = messages_of(work);
    const cz_group *group = work->group;
    const int size = group->size;
    if (!work->operation.reduces && !work->operation.exchanges) {
        *m = (messages){.begun = true, .all_opened = true}; /* ranks only met */
        return;
    }
    *m = (messages){.slot_bytes = cz__chunk_bytes(group, work->operation.longest),
                    .rounds_most =
                        cz__rounds_of(size, group->segment_bytes, work->operation.longest)};
    m->chunk_bytes =
        cz__terms_chunk(&work->operation.source, cz__stream_bytes(&work->operation, m->slot_bytes));
    m->parcels = (parcel *)(void *)&m->peers[size];
    m->sources = (const void **)(void *)&m->parcels[CZ__ROUNDS * size];
    for (int i = 0; i < m->rounds_most * size; i++)
        m->parcels[i].send.up = m->parcels[i].receive.up = false;
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    messages *m = messages_of(work);
    if (!m->begun) {
        if (work->operation.pool && !cz__pool_take(work))
            return CZ_OK;
        m->begun = true;
        *progress = CZ__MOVED;
        set_cursors(work);
    }
    for (bool moved = true; moved;) {
        if (is_over(work)) {
            *progress = CZ__DONE;
            return CZ_OK;
        }
        moved = false;
        CZ_TRY(move_rounds(work, &moved));
        CZ_TRY(open_round(work, &moved));
        if (moved)
            *progress = CZ__MOVED;
    }
    return CZ_OK;
}

static void withdraw(cz_work *work)
{
    messages *m = messages_of(work);
    for (int i = 0; i < m->rounds_most * work->group->size; i++) {
        cz__request_withdraw(work, &m->parcels[i].send);
        cz__request_withdraw(work, &m->parcels[i].receive);
    }
}

static bool awaits(const cz_work *work, int rank)
{
    for (int round = 0; round < messages_of(work)->rounds_most; round++) {
        const parcel *with = parcel_of(work, round, rank);
        if (cz__request_awaits(&with->send, rank) || cz__request_awaits(&with->receive, rank))
            return true;
    }
    return false;
}

const cz__engine cz__engine_messages = {.takes = takes,
                                        .bytes = bytes,
                                        .begin = begin,
                                        .advance = advance,
                                        .withdraw = withdraw,
                                        .awaits = awaits};
