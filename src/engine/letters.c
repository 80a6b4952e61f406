/* SPDX-License-Identifier: MIT */
/* Ranks meet by letters: a rank's letter has its header and, where they are small, its data. In
 * round k each rank sends the letters that it has, of itself and of the 2^k - 1 ranks after it, to
 * the rank 2^k before it, so that after log2(size) rounds all have all (Bruck et al., IEEE
 * Transactions on Parallel and Distributed Systems 8 (1997)). Between two ranks that is one message
 * each way. Then every rank merges the headers in rank order and has the same verdict, and adds up
 * or takes the data itself.
 *
 * Only what rank 0 alone can say, who uses which lane of a window, comes from it by a tree. In a
 * step owners send the values of their elements in letters, too. */
#include <stddef.h>

#include "base/status.h"
#include "engine/small_data.h"

enum { STEP_LETTERS = 1, STEP_ANSWER = 2 };
/* A letter has at most so many bytes of data; fewer where there are many ranks, and no letters
 * where there are more: those send too much in all. */
enum { MOST_RANKS = 64, ROUNDS = 6, MOST_DATA = 17408, ALL_DATA = 36 << 10 };

typedef struct letter {
    uint32_t bytes;   /* with this, a multiple of 64 */
    uint32_t data_at; /* where its data begin */
    char header[];    /* cz__header, without its sentence if there is none */
} letter;

static size_t most_data(int size)
{
    const size_t share = ALL_DATA / (size_t)size / 64 * 64;
    return share < MOST_DATA ? share : MOST_DATA;
}

static size_t most_bytes(int size)
{
    return cz__line_aligned(sizeof(letter) + sizeof(cz__header)) + most_data(size);
}

static bool are_few(int size)
{
    return size <= MOST_RANKS;
}

/* ---- all get all letters ---- */

typedef struct mail {
    char *letters; /* of this rank, the next one, and so on: */
    int known;     /* of so many ranks, */
    size_t bytes;  /* which take so many */
    int round;
    bool open; /* it has begun */
    cz__request sends[ROUNDS], receives[ROUNDS];
} mail;

static void begin_mail(mail *m, char *letters)
{
    m->letters = letters;
    m->known = m->round = 0;
    m->open = false;
    for (int k = 0; k < ROUNDS; k++)
        m->sends[k].up = m->receives[k].up = false;
}

static letter *own_letter(mail *m, size_t header_bytes)
{
    letter *own = (letter *)(void *)m->letters;
    own->data_at = (uint32_t)cz__line_aligned(sizeof *own + header_bytes);
    return own;
}

static void close_letter(mail *m, letter *own, size_t data_bytes)
{
    own->bytes = (uint32_t)cz__line_aligned(own->data_at + data_bytes);
    m->known = 1;
    m->bytes = own->bytes;
}

static letter *letter_at(const mail *m, size_t offset)
{
    return (letter *)(void *)(m->letters + offset);
}

static size_t bytes_of_first(const mail *m, int count, size_t *data)
{
    size_t bytes = 0;
    *data = 0;
    for (int i = 0; i < count; i++) {
        const letter *next = letter_at(m, bytes);
        *data += next->bytes - next->data_at;
        bytes += next->bytes;
    }
    return bytes;
}

static int after(const cz_work *work, int distance)
{
    return (work->group->rank + distance) % work->group->size;
}

static cz_status open_round(cz_work *work, mail *m, unsigned step)
{
    const int size = work->group->size, distance = m->known;
    const int count = distance < size - distance ? distance : size - distance;
    m->open = true;
    CZ_TRY(cz__request_receive_most(work, &m->receives[m->round], after(work, distance), step,
                                    m->letters + m->bytes, (size_t)count * most_bytes(size)));
    size_t data;
    const size_t all = bytes_of_first(m, count, &data);
    if (step == STEP_LETTERS)
        cz__traffic_were_data(work->group, data);
    return cz__request_send(work, &m->sends[m->round], after(work, size - distance), step,
                            m->letters, all);
}

/* What came are whole letters, of as many ranks as were expected. */
static cz_status close_round(const cz_work *work, mail *m)
{
    const int size = work->group->size;
    const int count = m->known < size - m->known ? m->known : size - m->known;
    const size_t end = m->bytes + m->receives[m->round].transfer.came;
    for (int i = 0; i < count; i++) {
        const letter *next = letter_at(m, m->bytes);
        const size_t left = end - m->bytes;
        if (left < sizeof *next || next->bytes > left || next->bytes > most_bytes(size) ||
            next->data_at < sizeof *next || next->data_at > next->bytes)
            return cz__fail(CZ_ERR_INTERNAL, "group: a letter of rank %d is not whole",
                            cz_group_global_rank(work->group, after(work, m->known)));
        m->bytes += next->bytes;
        m->known++;
    }
    m->open = false;
    m->round++;
    return CZ_OK;
}

static cz_status move_mail(cz_work *work, mail *m, unsigned step, bool *all)
{
    *all = false;
    while (m->known < work->group->size) {
        bool landed;
        if (!m->open)
            CZ_TRY(open_round(work, m, step));
        CZ_TRY(cz__request_landed(work, &m->receives[m->round], &landed));
        if (!landed)
            return CZ_OK;
        CZ_TRY(close_round(work, m));
    }
    *all = true;
    return CZ_OK;
}

static cz_status is_sent(cz_work *work, mail *m, bool *sent)
{
    *sent = true;
    for (int k = 0; k < ROUNDS; k++) {
        bool landed;
        CZ_TRY(cz__request_landed(work, &m->sends[k], &landed));
        *sent = *sent && landed;
    }
    return CZ_OK;
}

static void withdraw_mail(cz_work *work, mail *m)
{
    for (int k = 0; k < ROUNDS; k++) {
        cz__request_withdraw(work, &m->sends[k]);
        cz__request_withdraw(work, &m->receives[k]);
    }
}

static bool mail_awaits(const mail *m, int rank)
{
    bool any = false;
    for (int k = 0; k < ROUNDS && !any; k++)
        any = cz__request_awaits(&m->sends[k], rank) || cz__request_awaits(&m->receives[k], rank);
    return any;
}

/* The letters by rank. */
static void sort_letters(const cz_work *work, const mail *m, const letter **by_rank)
{
    size_t offset = 0;
    for (int i = 0; i < work->group->size; i++) {
        by_rank[after(work, i)] = letter_at(m, offset);
        offset += letter_at(m, offset)->bytes;
    }
}

/* ---- meeting ---- */

typedef enum place { AT_BEGIN, TO_WRITE, AWAITING_ALL, AT_VERDICT, AWAITING_ANSWER } place;

/* What rank 0 says of who moves the data. */
typedef struct answer {
    uint64_t offers, grant;
} answer;

typedef struct meeting {
    place at;
    bool is_small; /* data go with the headers */
    answer answer;
    cz__request answer_from, answers_to[ROUNDS];
    mail mail;
} meeting;

static meeting *meeting_of(const cz_work *work)
{
    return work->rendezvous.state;
}

static bool takes_meeting(const cz_work *work)
{
    return work->group->backend->at_most && !work->group->rendezvous && are_few(work->group->size);
}

static size_t meeting_bytes(int size, bool in_process)
{
    return in_process || !are_few(size)
               ? 0
               : cz__line_aligned(sizeof(meeting)) + (size_t)size * most_bytes(size);
}

/* Letters are in the host's memory. */
static bool fits(const cz_work *work)
{
    return work->group->device == cz_device_cpu() &&
           cz__small_fits(work, most_data(work->group->size));
}

static void begin_meeting(cz_work *work)
{
    meeting *m = meeting_of(work);
    m->at = AT_BEGIN;
    m->is_small = false;
    m->answer_from.up = false;
    for (int k = 0; k < ROUNDS; k++)
        m->answers_to[k].up = false;
    begin_mail(&m->mail, (char *)m + cz__line_aligned(sizeof *m));
}

/* Each of the others gets its data once, from this rank or by way of others. */
static void write_own(cz_work *work)
{
    meeting *m = meeting_of(work);
    const cz__header *header = &work->operation.header;
    const bool is_fine = header->status == CZ_OK;
    letter *own =
        own_letter(&m->mail, is_fine ? offsetof(cz__header, sentence) : sizeof(cz__header));
    m->is_small = is_fine && !work->meeting.again && fits(work);
    cz__header_copy((cz__header *)(void *)own->header, header);
    const size_t data = m->is_small ? cz__small_put(work, (char *)own + own->data_at, false) : 0;
    close_letter(&m->mail, own, data);
}

/* Merge headers, in rank order: the same verdict everywhere. */
static void merge_all(cz_work *work)
{
    const letter *letters[MOST_RANKS] = {NULL};
    sort_letters(work, &meeting_of(work)->mail, letters);
    cz__header_copy(&work->verdict, (const cz__header *)(const void *)letters[0]->header);
    for (int r = 1; r < work->group->size; r++)
        cz__header_merge(&work->verdict, (const cz__header *)(const void *)letters[r]->header,
                         work->sequence);
}

static cz_status pass_answer(cz_work *work)
{
    meeting *m = meeting_of(work);
    for (int i = 0, child; (child = cz__header_child(work->group, i)) >= 0; i++)
        CZ_TRY(cz__request_send(work, &m->answers_to[i], child, STEP_ANSWER, &m->answer,
                                sizeof m->answer));
    return CZ_OK;
}

static cz_status advance_meeting(cz_work *work, cz__engine_progress *progress)
{
    meeting *m = meeting_of(work);
    bool landed;
    switch (m->at) {
    case AT_BEGIN:
        m->at = TO_WRITE;
        *progress = CZ__TO_TELL;
        return CZ_OK;
    case TO_WRITE:
        write_own(work);
        m->at = AWAITING_ALL;
        *progress = CZ__MOVED;
        return CZ_OK;
    case AWAITING_ALL:
        CZ_TRY(move_mail(work, &m->mail, STEP_LETTERS, &landed));
        if (!landed)
            return CZ_OK;
        merge_all(work);
        m->at = AT_VERDICT;
        *progress = CZ__HEARD;
        return CZ_OK;
    case AT_VERDICT:
        if (!work->meeting.asks) {
            *progress = CZ__DONE;
            return CZ_OK;
        }
        m->at = AWAITING_ANSWER;
        *progress = CZ__MOVED;
        m->answer = (answer){work->verdict.offers, work->verdict.grant};
        return work->group->rank
                   ? cz__request_receive(work, &m->answer_from, cz__header_parent(work->group),
                                         STEP_ANSWER, &m->answer, sizeof m->answer)
                   : CZ_OK;
    default:
        CZ_TRY(cz__request_landed(work, &m->answer_from, &landed));
        if (!landed)
            return CZ_OK;
        work->verdict.offers = m->answer.offers;
        work->verdict.grant = m->answer.grant;
        *progress = CZ__DONE;
        return pass_answer(work);
    }
}

static cz_status settle_meeting(cz_work *work, bool *settled)
{
    meeting *m = meeting_of(work);
    CZ_TRY(is_sent(work, &m->mail, settled));
    for (int k = 0; k < ROUNDS; k++) {
        bool landed;
        CZ_TRY(cz__request_landed(work, &m->answers_to[k], &landed));
        *settled = *settled && landed;
    }
    return CZ_OK;
}

static void withdraw_meeting(cz_work *work)
{
    meeting *m = meeting_of(work);
    withdraw_mail(work, &m->mail);
    cz__request_withdraw(work, &m->answer_from);
    for (int k = 0; k < ROUNDS; k++)
        cz__request_withdraw(work, &m->answers_to[k]);
}

static bool meeting_awaits(const cz_work *work, int rank)
{
    const meeting *m = meeting_of(work);
    bool any = mail_awaits(&m->mail, rank) || cz__request_awaits(&m->answer_from, rank);
    for (int k = 0; k < ROUNDS && !any; k++)
        any = cz__request_awaits(&m->answers_to[k], rank);
    return any;
}

const cz__engine cz__engine_letters_meet = {.meets = true,
                                            .takes = takes_meeting,
                                            .bytes = meeting_bytes,
                                            .begin = begin_meeting,
                                            .advance = advance_meeting,
                                            .settle = settle_meeting,
                                            .withdraw = withdraw_meeting,
                                            .awaits = meeting_awaits};

/* ---- small data, which came with the headers ---- */

typedef struct small {
    bool begun; /* its own part is done; values may be awaited */
    mail mail;  /* of values, after an update */
} small;

static small *small_of(const cz_work *work)
{
    return work->data.state;
}

static bool takes(const cz_work *work)
{
    return work->rendezvous.engine == &cz__engine_letters_meet && meeting_of(work)->is_small;
}

/* After the state: letters of values, or before that room for a sum. */
static char *memory_of(const cz_work *work)
{
    return (char *)small_of(work) + cz__line_aligned(sizeof(small));
}

static size_t bytes(int size, bool in_process)
{
    return in_process || !are_few(size)
               ? 0
               : cz__line_aligned(sizeof(small)) + (size_t)size * most_bytes(size);
}

static void begin(cz_work *work)
{
    small_of(work)->begun = false;
    begin_mail(&small_of(work)->mail, memory_of(work));
    cz__pool_pass(work);
}

static bool brings_values(const cz_work *work)
{
    return work->operation.update && work->operation.exchanges;
}

static cz_status do_own_part(cz_work *work)
{
    const letter *letters[MOST_RANKS] = {NULL};
    const char *given[MOST_RANKS];
    const void *sources[MOST_RANKS];
    sort_letters(work, &meeting_of(work)->mail, letters);
    for (int r = 0; r < work->group->size; r++)
        given[r] = (const char *)letters[r] + letters[r]->data_at;
    const cz__small_data data = {memory_of(work), given, sources};
    return cz__small_move(work, &data);
}

static void write_values(cz_work *work)
{
    mail *m = &small_of(work)->mail;
    letter *own = own_letter(m, 0);
    const size_t data = work->operation.shared_values
                            ? 0
                            : cz__small_put_stream(work, &work->operation.values, work->group->rank,
                                                   (char *)own + own->data_at);
    close_letter(m, own, data);
}

static void take_values(cz_work *work)
{
    const letter *letters[MOST_RANKS] = {NULL};
    if (work->operation.shared_values)
        return;
    sort_letters(work, &small_of(work)->mail, letters);
    for (int r = 0; r < work->group->size; r++)
        if (r != work->group->rank)
            cz__small_take_stream(work, &work->operation.values, r,
                                  (const char *)letters[r] + letters[r]->data_at);
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    small *s = small_of(work);
    bool all = true;
    if (!s->begun) {
        s->begun = true;
        CZ_TRY(do_own_part(work));
        if (brings_values(work))
            write_values(work);
        *progress = CZ__MOVED;
    }
    if (brings_values(work)) {
        CZ_TRY(move_mail(work, &s->mail, CZ__STEP_EXCHANGE, &all));
        if (!all)
            return CZ_OK;
        CZ_TRY(is_sent(work, &s->mail, &all));
        if (!all)
            return CZ_OK;
        take_values(work);
    }
    *progress = CZ__DONE;
    return CZ_OK;
}

static void withdraw(cz_work *work)
{
    withdraw_mail(work, &small_of(work)->mail);
}

static bool awaits(const cz_work *work, int rank)
{
    return mail_awaits(&small_of(work)->mail, rank);
}

const cz__engine cz__engine_letters = {.takes = takes,
                                       .bytes = bytes,
                                       .begin = begin,
                                       .advance = advance,
                                       .withdraw = withdraw,
                                       .awaits = awaits};
