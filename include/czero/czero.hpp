/* SPDX-License-Identifier: MIT */
/** @file czero.hpp  czero in C++17: the same calls, with handles that end by themselves, failures
 *  that are thrown, and lambdas where C has a function and a context.
 *
 *      czero::launch([](czero::group &world) {
 *          std::vector<float> weights(1000), gradients(1000);
 *          czero::model model;
 *          model.add("weights", weights, gradients);
 *          czero::zero zero(world, model, cz_rule_adamw(), {{"lr", 0.1}});
 *          for (int step = 0; step < 200; step++) {
 *              …                                  // gradients of this rank's examples
 *              zero.step();
 *          }
 *      });
 *
 *  **The words are those of C**, whose headers have the contracts: what is collective, which thread
 *  may call, what is borrowed, which errors there are. A type cz_X is a class czero::X.
 *  - cz_X_create(&x, …) is the constructor; cz_X_create_KIND(&x, …) is czero::X::create_KIND(…).
 *  - cz_X_verb(x, …) is x.verb(…). Operations are members of their group: group.all_reduce(…).
 *  - What C writes through a pointer at the end is returned: info structs, dictionaries, norms.
 *  - Option structs are those of C; czero::fresh<cz_zero_options>() is one with its defaults, which
 *    every call takes that is given none.
 *  - A status that is not CZ_OK is thrown as czero::error. Calls without a status are as in C.
 *  A class converts to its C handle, so every function of C is called with it as it stands, those
 *  too that have no class: czero::check(cz_zero_trace(zero, CZ_TRACE_SYNC, &totals)).
 *
 *  **Handles** own what they made, can be moved and not copied, and are destroyed in the opposite
 *  order of their making, as C asks. What is borrowed in C is borrowed here: a model outlives its
 *  optimizers, a group what is made on it. A moved-from handle is a NULL in C. A member that is
 *  made later is a std::optional.
 *
 *  **Sizes** are checked here, since C cannot see them. Where such a check fails in an operation,
 *  this rank fails alone, as with a NULL for its group: who goes on leaves the others waiting.
 *
 *  **Buffers of an operation that was only started** live until it has ended. A work that is
 *  destroyed while an exception unwinds its scope waits for that; otherwise it goes on by itself.
 *
 *  **Exceptions in functions of the program** (rank mains, closures, hooks, continuations, rules,
 *  schedules, visitors): the library is given a failure with the exception's text, so that other
 *  ranks learn of it by status and sentence as of any other failure, and none hangs or aborts. The
 *  exception itself, of whatever type, comes out of the call in which the program made that
 *  function run: step() for closures and rules, begin() and finish() of a pass for hooks, wait()
 *  for continuations, join::run() for its body, launch() for rank mains, for others the call that
 *  is given them. (Of a work that a hook lets go of, finish() throws a czero::error with the text.)
 *  Its status for other ranks is that of a
 *  czero::error, CZ_ERR_MEMORY of std::bad_alloc, CZ_ERR_ARGUMENT of std::logic_error and its
 *  children, CZ_ERR_STATE of anything else. Destructors throw nothing. */
#ifndef CZERO_CZERO_HPP
#define CZERO_CZERO_HPP

#include <array>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

#include "czero/czero.h"

namespace czero
{

/* ---- failures ---- */

/** A call has failed: what() is the sentence. */
class error : public std::runtime_error
{
  public:
    error(cz_status status, const std::string &sentence)
        : std::runtime_error(sentence), status_(status)
    {
    }
    cz_status status() const noexcept { return status_; }

  private:
    cz_status status_;
};

/** Throw if a call of C has failed: what a function of the program threw in it, if that is why. */
inline void check(cz_status status);

namespace detail
{

/** Exceptions that were thrown in functions of the program which the library called, until they can
 *  come out. Any thread. */
class thrown
{
  public:
    /** Run such a function, of no result or of a status; what it throws is kept. */
    template <class Function> cz_status run(Function &&function)
    {
        try {
            if constexpr (std::is_same_v<decltype(function()), cz_status>) {
                return function();
            } else {
                function();
                return CZ_OK;
            }
        } catch (const error &e) {
            return keep(e.status(), e.what());
        } catch (const std::bad_alloc &e) {
            return keep(CZ_ERR_MEMORY, e.what());
        } catch (const std::logic_error &e) {
            return keep(CZ_ERR_ARGUMENT, e.what());
        } catch (const std::exception &e) {
            return keep(CZ_ERR_STATE, e.what());
#if defined(__GLIBCXX__)
        } catch (abi::__forced_unwind &) { /* the thread was cancelled */
            throw;
#endif
        } catch (...) {
            return keep(CZ_ERR_STATE, "an exception that is no std::exception");
        }
    }

    /** What was kept first, and nothing is any more. */
    std::exception_ptr take() noexcept
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        return std::exchange(first_, nullptr);
    }

    /** The end of a call that may have run them: throw what was kept, or else the failure. What was
     *  kept and did not make the call fail is gone. */
    void check(cz_status status)
    {
        const std::exception_ptr kept = take();
        if (status == CZ_OK)
            return;
        if (kept)
            std::rethrow_exception(kept);
        throw error(status, cz_last_error());
    }

    /** The same of functions that could not say that they failed. */
    void check_always(cz_status status)
    {
        if (const std::exception_ptr kept = take())
            std::rethrow_exception(kept);
        czero::check(status);
    }

  private:
    cz_status keep(cz_status status, const char *sentence)
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (!first_)
            first_ = std::current_exception();
        return cz_fail_text(status == CZ_OK ? CZ_ERR_STATE : status, sentence);
    }

    std::mutex mutex_;
    std::exception_ptr first_;
};

/** What functions have thrown on this thread inside calls of the program. */
inline thrown &pending()
{
    thread_local thrown own;
    return own;
}
} // namespace detail

inline void check(cz_status status)
{
    detail::pending().check(status);
}

namespace detail
{

/** Of kernels of rules, which have no context and may run on any thread. */
CZ_API inline thrown &thrown_by_kernels()
{
    static thrown all;
    return all;
}

/** A handle of C: owned, or borrowed. */
template <class Object, void (*Destroy)(Object **)> class handle
{
  public:
    handle() noexcept = default;
    handle(Object *object, bool owned) noexcept : object_(object), owned_(owned) {}
    handle(handle &&other) noexcept
        : object_(std::exchange(other.object_, nullptr)), owned_(other.owned_)
    {
    }
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) {
            reset();
            object_ = std::exchange(other.object_, nullptr);
            owned_ = other.owned_;
        }
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { reset(); }

    Object *get() const noexcept { return object_; }
    /** For every function of C. */
    operator Object *() const noexcept { return object_; }
    /** Destroy it, as the destructor does. */
    void reset() noexcept
    {
        if (owned_)
            Destroy(&object_);
        object_ = nullptr;
    }
    /** It is the caller's from now on. */
    Object *release() noexcept { return std::exchange(object_, nullptr); }

  protected:
    /** What a function of C makes, by its first argument. */
    template <class Call, class... Arguments>
    static Object *made(Call &&call, Arguments &&...arguments)
    {
        Object *object = nullptr;
        check(call(&object, std::forward<Arguments>(arguments)...));
        return object;
    }

  private:
    Object *object_ = nullptr;
    bool owned_ = false;
};

template <class Type> struct dtype_of;
template <> struct dtype_of<float> {
    static constexpr cz_dtype value = CZ_F32;
};
template <> struct dtype_of<double> {
    static constexpr cz_dtype value = CZ_F64;
};
template <> struct dtype_of<std::int32_t> {
    static constexpr cz_dtype value = CZ_I32;
};
template <> struct dtype_of<std::int64_t> {
    static constexpr cz_dtype value = CZ_I64;
};
template <> struct dtype_of<std::uint8_t> {
    static constexpr cz_dtype value = CZ_U8;
};
/* long and long long are both of 64 bits, and two types. */
using other_long = std::conditional_t<std::is_same_v<std::int64_t, long>, long long, long>;
template <> struct dtype_of<other_long> {
    static_assert(sizeof(other_long) != 8 || sizeof(long long) == 8, "");
    static constexpr cz_dtype value = sizeof(other_long) == 8 ? CZ_I64 : CZ_I32;
};

} // namespace detail

/** The type of elements, as czero::dtype<float>. Memory of 16-bit types is given as cz_tensor. */
template <class Type>
inline constexpr cz_dtype dtype = detail::dtype_of<std::remove_cv_t<Type>>::value;

/* ---- arrays and options ---- */

/** Elements one after the other, which are somebody else's: made from anything that has data() and
 *  size(), an array, or an address and a number. (cz_span is another thing: a piece of a shard.) */
template <class Type> class span
{
  public:
    constexpr span() noexcept = default;
    constexpr span(Type *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t Size>
    constexpr span(Type (&array)[Size]) noexcept : data_(array), size_(Size)
    {
    }
    template <class Container,
              class = std::enable_if_t<
                  std::is_convertible_v<decltype(std::declval<Container &>().data()), Type *>>,
              class = decltype(std::declval<Container &>().size())>
    constexpr span(Container &&container) noexcept
        : data_(container.data()), size_(container.size())
    {
    }
    /** For arguments: a list that lives until the end of the call. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
    constexpr span(std::initializer_list<std::remove_const_t<Type>> list) noexcept
        : data_(list.begin()), size_(list.size())
    {
    }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

    constexpr Type *data() const noexcept
    {
        return data_;
    }
    constexpr std::size_t size() const noexcept
    {
        return size_;
    }
    constexpr bool empty() const noexcept
    {
        return size_ == 0;
    }
    constexpr Type &operator[](std::size_t i) const
    {
        return data_[i];
    }
    constexpr Type *begin() const noexcept
    {
        return data_;
    }
    constexpr Type *end() const noexcept
    {
        return data_ + size_;
    }
    std::int64_t count() const noexcept
    {
        return static_cast<std::int64_t>(size_);
    }

  private:
    Type *data_ = nullptr;
    std::size_t size_ = 0;
};

namespace detail
{

/** Is it a variable, or a span and its like, and no container that ends with the call? */
template <class Buffer>
inline constexpr bool stays = std::is_lvalue_reference_v<Buffer> ||
                              std::is_trivially_copyable_v<std::remove_reference_t<Buffer>>;

/** The elements of an argument: a number is one, anything else is a span. */
template <class Buffer> auto elements(Buffer &&buffer)
{
    using plain = std::remove_reference_t<Buffer>;
    if constexpr (std::is_arithmetic_v<plain>) {
        static_assert(std::is_lvalue_reference_v<Buffer>, "a number in a variable");
        return span<plain>(&buffer, 1);
    } else if constexpr (std::is_array_v<plain>) {
        return span<std::remove_extent_t<plain>>(buffer);
    } else {
        return span<std::remove_pointer_t<decltype(buffer.data())>>(buffer.data(), buffer.size());
    }
}

inline void expect_size(const char *call, const char *what, std::int64_t found,
                        std::int64_t expected)
{
    if (found != expected)
        throw error(CZ_ERR_ARGUMENT, std::string(call) + ": " + what + " has " +
                                         std::to_string(found) + " elements, expected " +
                                         std::to_string(expected));
}

inline void expect_type(const char *call, cz_dtype found, cz_dtype expected)
{
    if (found != expected)
        throw error(CZ_ERR_ARGUMENT, std::string(call) + ": it is of type " + cz_dtype_name(found) +
                                         ", expected " + cz_dtype_name(expected));
}

inline std::int64_t product(span<const std::int64_t> shape)
{
    cz_tensor tensor = {};
    tensor.dimensions = static_cast<int>(shape.size());
    if (shape.size() > CZ_MAX_DIMENSIONS)
        throw error(CZ_ERR_ARGUMENT, "a shape of " + std::to_string(shape.size()) +
                                         " dimensions, at most " +
                                         std::to_string(CZ_MAX_DIMENSIONS) + " are allowed");
    for (std::size_t i = 0; i < shape.size(); i++)
        tensor.shape[i] = shape[i];
    return cz_tensor_count(&tensor);
}

/** `size` after the first call, then its members: C's way to return a list. */
template <class Ask> std::vector<std::int64_t> listed(const char *call, Ask &&ask)
{
    const std::int64_t count = ask(nullptr, 0);
    if (count < 0)
        throw error(CZ_ERR_ARGUMENT, std::string(call) + ": there is no such one");
    std::vector<std::int64_t> list(static_cast<std::size_t>(count));
    ask(list.data(), count);
    return list;
}

} // namespace detail

/** A struct of C with its defaults and its size. */
template <class Struct> Struct fresh();

/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define CZERO_FRESH(type)                                                                          \
    template <> inline type fresh<type>()                                                          \
    {                                                                                              \
        type it;                                                                                   \
        type##_init(&it);                                                                          \
        return it;                                                                                 \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
CZERO_FRESH(cz_allocator)
CZERO_FRESH(cz_archive_info)
CZERO_FRESH(cz_archive_tensor)
CZERO_FRESH(cz_averager_level)
CZERO_FRESH(cz_averager_options)
CZERO_FRESH(cz_bucket_info)
CZERO_FRESH(cz_bucket_param)
CZERO_FRESH(cz_checkpoint_options)
CZERO_FRESH(cz_ddp_info)
CZERO_FRESH(cz_ddp_options)
CZERO_FRESH(cz_export_options)
CZERO_FRESH(cz_group_info)
CZERO_FRESH(cz_group_options)
CZERO_FRESH(cz_hook)
CZERO_FRESH(cz_hook_record)
CZERO_FRESH(cz_hook_recorder)
CZERO_FRESH(cz_in_backward_options)
CZERO_FRESH(cz_join_info)
CZERO_FRESH(cz_join_options)
CZERO_FRESH(cz_joinable)
CZERO_FRESH(cz_launch_options)
CZERO_FRESH(cz_load_options)
CZERO_FRESH(cz_load_result)
CZERO_FRESH(cz_mixed_precision)
CZERO_FRESH(cz_model_info)
CZERO_FRESH(cz_model_param)
CZERO_FRESH(cz_moving_average)
CZERO_FRESH(cz_operation_options)
CZERO_FRESH(cz_optim_info)
CZERO_FRESH(cz_optim_load_options)
CZERO_FRESH(cz_optim_options)
CZERO_FRESH(cz_param_group)
CZERO_FRESH(cz_parts_info)
CZERO_FRESH(cz_parts_options)
CZERO_FRESH(cz_plan_info)
CZERO_FRESH(cz_plan_memory)
CZERO_FRESH(cz_plan_options)
CZERO_FRESH(cz_post_local_sgd)
CZERO_FRESH(cz_powersgd_options)
CZERO_FRESH(cz_powersgd_stats)
CZERO_FRESH(cz_replicas_options)
CZERO_FRESH(cz_sampler_info)
CZERO_FRESH(cz_sampler_options)
CZERO_FRESH(cz_save_options)
CZERO_FRESH(cz_sched_cyclic_options)
CZERO_FRESH(cz_sched_one_cycle_options)
CZERO_FRESH(cz_sched_options)
CZERO_FRESH(cz_sched_plateau_options)
CZERO_FRESH(cz_step_options)
CZERO_FRESH(cz_step_result)
CZERO_FRESH(cz_trace_totals)
CZERO_FRESH(cz_verify_options)
CZERO_FRESH(cz_verify_result)
CZERO_FRESH(cz_zero_info)
CZERO_FRESH(cz_zero_options)
#undef CZERO_FRESH

namespace detail
{

/** What a function of C fills in, by its last argument. */
template <class Struct, class Call, class... Arguments>
Struct filled(Call &&call, Arguments &&...arguments)
{
    Struct out = fresh<Struct>();
    check(call(std::forward<Arguments>(arguments)..., &out));
    return out;
}

} // namespace detail

/** Hyper-parameters by name: {{"lr", 1e-3}, {"weight_decay", 0.1}}; what ends a list in C comes by
 *  itself. Names are borrowed. None: the rule's defaults. */
class hypers
{
  public:
    hypers() = default;
    hypers(std::initializer_list<cz_hyper> list) : list_(list) { list_.push_back({nullptr, 0}); }
    explicit hypers(std::vector<cz_hyper> list) : list_(std::move(list))
    {
        list_.push_back({nullptr, 0});
    }
    operator const cz_hyper *() const noexcept { return list_.empty() ? nullptr : list_.data(); }

  private:
    std::vector<cz_hyper> list_;
};

/** A parameter group: {{0, 1, 2}, {{"lr", 1e-4}}}; with a rule of its own:
 *  {{3}, {{"lr", 0.1}}, cz_rule_sgd()}. */
class param_group
{
  public:
    explicit param_group(std::vector<std::int64_t> params, hypers values = {},
                         const cz_rule *rule = nullptr)
        : params_(std::move(params)), hypers_(std::move(values)), rule_(rule)
    {
    }
    operator cz_param_group() const
    {
        cz_param_group group = fresh<cz_param_group>();
        group.params = params_.data();
        group.param_count = static_cast<std::int64_t>(params_.size());
        group.hypers = hypers_;
        group.rule = rule_;
        return group;
    }

  private:
    std::vector<std::int64_t> params_;
    hypers hypers_;
    const cz_rule *rule_;
};

/** Several, for options: param_groups groups({…, …}); options.groups = groups.data();
 *  options.group_count = groups.count(); */
class param_groups
{
  public:
    param_groups(param_groups &&) = default;
    param_groups &operator=(param_groups &&) = default;
    param_groups(const param_groups &) = delete; /* the list refers to the groups */
    param_groups &operator=(const param_groups &) = delete;
    explicit param_groups(std::vector<param_group> groups)
        : groups_(std::move(groups)), list_(groups_.begin(), groups_.end())
    {
    }
    const cz_param_group *data() const noexcept { return list_.data(); }
    std::int64_t count() const noexcept { return static_cast<std::int64_t>(list_.size()); }

  private:
    std::vector<param_group> groups_;
    std::vector<cz_param_group> list_;
};

/* ---- operations in flight ---- */

/** An operation in flight. Destroyed, it goes on, and its buffers stay in use. */
class work : public detail::handle<cz_work, cz_work_destroy>
{
  public:
    work() = default;
    explicit work(cz_work *object) noexcept : handle(object, true) {}
    work(work &&) noexcept = default;
    work &operator=(work &&) noexcept = default;
    ~work()
    {
        if (get() && std::uncaught_exceptions() > 0)
            (void)cz_work_wait(get());
    }

    void wait()
    {
        if (!get())
            check(cz_work_wait(get()));
        thrown_->check(cz_work_wait(get()));
    }
    bool test()
    {
        bool done = false;
        check(cz_work_test(get(), &done));
        return done;
    }
    /** `continuation(cz_status)` runs when it has ended, on a thread of the library or one that
     *  waits; it returns nothing or a status. What it throws comes out of wait(). */
    template <class Continuation> void then(Continuation continuation)
    {
        struct context {
            Continuation continuation;
            std::shared_ptr<detail::thrown> thrown;
        };
        auto own = std::make_unique<context>(context{std::move(continuation), thrown_});
        check(cz_work_then(
            get(),
            [](cz_status status, void *data) {
                const std::unique_ptr<context> mine(static_cast<context *>(data));
                const cz_status own = mine->thrown->run([&] { return mine->continuation(status); });
                return status != CZ_OK ? status : own;
            },
            own.get()));
        own.release(); /* the continuation has it */
    }

  private:
    std::shared_ptr<detail::thrown> thrown_ = std::make_shared<detail::thrown>();
};

/** How an operation is started: with a label, group.barrier("epoch"), or in the background,
 *  group.barrier(czero::start(work)). */
class operation
{
  public:
    operation() = default;
    operation(const char *label) noexcept : label_(label) {}
    operation(work &receives, const char *label) noexcept : label_(label), receives_(&receives) {}

    /** Make a call with these options. */
    template <class Call> void run(Call &&call) const
    {
        cz_work *started = nullptr;
        const cz_operation_options options =
            receives_ ? cz_operation_start(label_, &started) : cz_operation_label(label_);
        check(call(&options));
        if (receives_)
            *receives_ = work(started);
    }

  private:
    const char *label_ = nullptr;
    work *receives_ = nullptr;
};

/** In the background: the work is received, and its buffers live until it has ended. Made after
 *  them, so that it waits for its operation where an exception ends both. */
inline operation start(work &receives, const char *label = nullptr) noexcept
{
    return {receives, label};
}

/* ---- groups ---- */

/** One rank's handle on a process group. */
class group : public detail::handle<cz_group, cz_group_destroy>
{
  public:
    using handle::handle;

    static std::vector<group> create_threads(
        int world_size, const cz_group_options &options = fresh<cz_group_options>())
    {
        std::vector<cz_group *> ranks(world_size > 0 ? static_cast<std::size_t>(world_size) : 1);
        check(cz_group_create_threads(ranks.data(), world_size, &options));
        std::vector<group> all;
        for (cz_group *rank : ranks)
            all.emplace_back(rank, true);
        return all;
    }
    static group create_world(const char *backend, bool initialise,
                              const cz_group_options &options = fresh<cz_group_options>())
    {
        return {made(cz_group_create_world, backend, initialise, &options), true};
    }
    static group create_self(const cz_group_options &options = fresh<cz_group_options>())
    {
        return create_world("self", false, options);
    }
    static group create_custom(int rank, int size, const cz_backend &backend, void *endpoint,
                               const cz_group_options &options = fresh<cz_group_options>())
    {
        return {made(cz_group_create_custom, rank, size, &backend, endpoint, &options), true};
    }

    int rank() const noexcept { return cz_group_rank(get()); }
    int size() const noexcept { return cz_group_size(get()); }
    int global_rank(int rank) const noexcept { return cz_group_global_rank(get(), rank); }
    int local_cores()
    {
        int cores = 0;
        check(cz_group_local_cores(get(), &cores));
        return cores;
    }
    cz_group_info get_info() const
    {
        return detail::filled<cz_group_info>(cz_group_get_info, get());
    }
    void progress() { check(cz_progress(get())); }

    /** With a color below 0 a handle that is NULL. */
    group split(int color, int key)
    {
        cz_group *made = nullptr;
        check(cz_group_split(get(), color, key, &made));
        return {made, true};
    }
    group subset(span<const int> ranks)
    {
        cz_group *made = nullptr;
        check(cz_group_subset(get(), ranks.data(), static_cast<int>(ranks.size()), &made));
        return {made, true};
    }

    /* The operations: a buffer is a number in a variable, an array, or a container; its size is
     * the count, of one rank's block where C's is. */
    template <class Buffer> void broadcast(Buffer &&buffer, int root, const operation &how = {})
    {
        const auto data = detail::elements(buffer);
        how.run([&](const cz_operation_options *options) {
            return cz_broadcast(get(), data.data(), data.count(), type_of(data), root, options);
        });
    }
    template <class Buffer>
    void all_reduce(Buffer &&buffer, cz_reduction reduction, const operation &how = {})
    {
        const auto data = detail::elements(buffer);
        how.run([&](const cz_operation_options *options) {
            return cz_all_reduce(get(), data.data(), data.count(), type_of(data), reduction,
                                 options);
        });
    }
    template <class Input, class Output>
    void reduce_scatter(const Input &input, Output &&output, cz_reduction reduction,
                        const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        expect_blocks("reduce_scatter: input", from, to.count());
        how.run([&](const cz_operation_options *options) {
            return cz_reduce_scatter(get(), from.data(), to.data(), to.count(), type_of(from, to),
                                     reduction, options);
        });
    }
    template <class Input, class Output>
    void all_gather(const Input &input, Output &&output, const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        expect_blocks("all_gather: output", to, from.count());
        how.run([&](const cz_operation_options *options) {
            return cz_all_gather(get(), from.data(), to.data(), from.count(), type_of(from, to),
                                 options);
        });
    }
    /** The output of other ranks than the root may be empty; so it is with gather(). */
    template <class Input, class Output>
    void reduce(const Input &input, Output &&output, cz_reduction reduction, int root,
                const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        if (rank() == root)
            detail::expect_size("reduce", "output", to.count(), from.count());
        how.run([&](const cz_operation_options *options) {
            return cz_reduce(get(), from.data(), to.data(), from.count(), type_of(from, to),
                             reduction, root, options);
        });
    }
    template <class Input, class Output>
    void gather(const Input &input, Output &&output, int root, const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        if (rank() == root)
            expect_blocks("gather: output", to, from.count());
        how.run([&](const cz_operation_options *options) {
            return cz_gather(get(), from.data(), to.data(), from.count(), type_of(from, to), root,
                             options);
        });
    }
    /** The input of other ranks than the root may be empty. */
    template <class Input, class Output>
    void scatter(const Input &input, Output &&output, int root, const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        if (rank() == root)
            expect_blocks("scatter: input", from, to.count());
        how.run([&](const cz_operation_options *options) {
            return cz_scatter(get(), from.data(), to.data(), to.count(), type_of(from, to), root,
                              options);
        });
    }
    template <class Input, class Output>
    void all_to_all(const Input &input, Output &&output, const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        const std::int64_t count = from.count() / (size() > 0 ? size() : 1);
        expect_blocks("all_to_all: input", from, count);
        expect_blocks("all_to_all: output", to, count);
        how.run([&](const cz_operation_options *options) {
            return cz_all_to_all(get(), from.data(), to.data(), count, type_of(from, to), options);
        });
    }

    /* With a count for each rank: lists of size() entries, in use until a work is done. */
    template <class Input, class Output>
    void reduce_scatter_v(const Input &input, Output &&output, span<const std::int64_t> counts,
                          cz_reduction reduction, const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        expect_counts("reduce_scatter_v", counts, from, "input");
        detail::expect_size("reduce_scatter_v", "output", to.count(), counts[place()]);
        how.run([&](const cz_operation_options *options) {
            return cz_reduce_scatter_v(get(), from.data(), to.data(), counts.data(),
                                       type_of(from, to), reduction, options);
        });
    }
    template <class Input, class Output>
    void all_gather_v(const Input &input, Output &&output, span<const std::int64_t> counts,
                      const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        expect_counts("all_gather_v", counts, to, "output");
        detail::expect_size("all_gather_v", "input", from.count(), counts[place()]);
        how.run([&](const cz_operation_options *options) {
            return cz_all_gather_v(get(), from.data(), to.data(), counts.data(), type_of(from, to),
                                   options);
        });
    }
    template <class Input, class Output>
    void gather_v(const Input &input, Output &&output, span<const std::int64_t> counts, int root,
                  const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        expect_counts("gather_v", counts);
        detail::expect_size("gather_v", "input", from.count(), counts[place()]);
        if (rank() == root)
            expect_counts("gather_v", counts, to, "output");
        how.run([&](const cz_operation_options *options) {
            return cz_gather_v(get(), from.data(), to.data(), counts.data(), type_of(from, to),
                               root, options);
        });
    }
    template <class Input, class Output>
    void scatter_v(const Input &input, Output &&output, span<const std::int64_t> counts, int root,
                   const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        expect_counts("scatter_v", counts);
        detail::expect_size("scatter_v", "output", to.count(), counts[place()]);
        if (rank() == root)
            expect_counts("scatter_v", counts, from, "input");
        how.run([&](const cz_operation_options *options) {
            return cz_scatter_v(get(), from.data(), to.data(), counts.data(), type_of(from, to),
                                root, options);
        });
    }
    template <class Input, class Output>
    void all_to_all_v(const Input &input, span<const std::int64_t> send_counts, Output &&output,
                      span<const std::int64_t> receive_counts, const operation &how = {})
    {
        const auto from = detail::elements(input);
        const auto to = detail::elements(output);
        expect_counts("all_to_all_v: send", send_counts, from, "input");
        expect_counts("all_to_all_v: receive", receive_counts, to, "output");
        how.run([&](const cz_operation_options *options) {
            return cz_all_to_all_v(get(), from.data(), send_counts.data(), to.data(),
                                   receive_counts.data(), type_of(from, to), options);
        });
    }

    /** Bytes of a length that only the root knows; what other ranks give is not looked at. */
    std::string broadcast_object(const std::string &bytes, int root)
    {
        void *object = nullptr;
        std::size_t count = 0;
        check(cz_broadcast_object(get(), bytes.data(), bytes.size(), root, &object, &count));
        const std::unique_ptr<void, void (*)(void *)> owned(object, cz_object_free);
        return {static_cast<const char *>(object), count};
    }
    void barrier(const operation &how = {})
    {
        how.run([&](const cz_operation_options *options) { return cz_barrier(get(), options); });
    }

  private:
    template <class Type> static cz_dtype type_of(span<Type>) { return dtype<Type>; }
    template <class Input, class Output> static cz_dtype type_of(span<Input>, span<Output>)
    {
        static_assert(std::is_same_v<std::remove_cv_t<Input>, Output>, "input and output differ");
        return dtype<Output>;
    }
    std::size_t place() const { return static_cast<std::size_t>(rank()); }

    /* What C cannot see: how large buffers are. This rank fails alone; the others learn of it when
     * it leaves the group. */
    template <class Type>
    void expect_blocks(const char *what, span<Type> buffer, std::int64_t block) const
    {
        detail::expect_size("group", what, buffer.count(), block * size());
    }
    void expect_counts(const char *call, span<const std::int64_t> counts) const
    {
        if (!get())
            throw error(CZ_ERR_ARGUMENT, std::string(call) + ": group is NULL");
        detail::expect_size(call, "list of counts", counts.count(), size());
    }
    template <class Type>
    void expect_counts(const char *call, span<const std::int64_t> counts, span<Type> whole,
                       const char *what) const
    {
        std::int64_t sum = 0;
        expect_counts(call, counts);
        for (const std::int64_t count : counts)
            sum += count;
        detail::expect_size(call, what, whole.count(), sum);
    }
};

/* ---- launch ---- */

/** Run `main(group &world)` once per rank, see cz_launch(). It returns nothing or a status. What a
 *  rank throws fails the launch; of several ranks that do so, what comes out is the exception of
 *  the one that cz_launch() names. `main` is copied once, and called by all ranks. */
template <class Main>
void launch(Main main, const cz_launch_options &options = fresh<cz_launch_options>())
{
    struct failure {
        cz_status status;
        int rank;
        std::string sentence;
        std::exception_ptr exception;
    };
    struct context {
        explicit context(Main &&given) : main(std::move(given)) {}
        Main main;
        std::mutex mutex;
        std::vector<failure> failures;
    };
    /* Ranks that are still in it after CZ_ERR_TIMEOUT have it, too. */
    auto all = std::make_shared<context>(std::move(main));
    const cz_status status = cz_launch(
        [](cz_group *world, void *data) {
            const auto mine = *static_cast<const std::shared_ptr<context> *>(data);
            detail::thrown thrown;
            const cz_status own = thrown.run([&] {
                group here(world, false);
                return mine->main(here);
            });
            if (std::exception_ptr kept = thrown.take()) {
                const std::string sentence = cz_last_error();
                const std::lock_guard<std::mutex> guard(mine->mutex);
                mine->failures.push_back({own, cz_group_rank(world), sentence, std::move(kept)});
            }
            return own;
        },
        &all, &options);
    if (status == CZ_OK)
        return;
    const std::string sentence = cz_last_error();
    const std::lock_guard<std::mutex> guard(all->mutex);
    for (const failure &one : all->failures)
        if (one.status == status &&
            (sentence == one.sentence ||
             sentence.rfind("rank " + std::to_string(one.rank) + " of ", 0) == 0))
            std::rethrow_exception(one.exception);
    throw error(status, sentence);
}

/* ---- state dictionaries ---- */

/** Typed values with names. One that get_dict() or add_dict() returns is borrowed. */
class state_dict : public detail::handle<cz_state_dict, cz_state_dict_destroy>
{
  public:
    using handle::handle;
    state_dict() : handle(made(cz_state_dict_create), true) {}

    state_dict copy() const { return {made(cz_state_dict_copy, get()), true}; }
    bool equal(const cz_state_dict *other) const { return cz_state_dict_equal(get(), other); }
    std::int64_t count() const { return cz_state_dict_count(get()); }
    const char *key(std::int64_t index) const { return cz_state_dict_key(get(), index); }
    cz_state_kind kind(const std::string &key) const
    {
        return cz_state_dict_kind(get(), key.c_str());
    }
    void remove(const std::string &key) { check(cz_state_dict_remove(get(), key.c_str())); }

    void set_integer(const std::string &key, std::int64_t value)
    {
        check(cz_state_dict_set_integer(get(), key.c_str(), value));
    }
    void set_real(const std::string &key, double value)
    {
        check(cz_state_dict_set_real(get(), key.c_str(), value));
    }
    void set_text(const std::string &key, const std::string &value)
    {
        check(cz_state_dict_set_text(get(), key.c_str(), value.c_str()));
    }
    void set_texts(const std::string &key, span<const std::string> texts)
    {
        std::vector<const char *> list;
        for (const std::string &text : texts)
            list.push_back(text.c_str());
        check(cz_state_dict_set_texts(get(), key.c_str(), list.data(), texts.count()));
    }
    void set_tensor(const std::string &key, const cz_tensor &value)
    {
        check(cz_state_dict_set_tensor(get(), key.c_str(), &value));
    }
    void set_dict(const std::string &key, const cz_state_dict *source)
    {
        check(cz_state_dict_set_dict(get(), key.c_str(), source));
    }
    /** Zeros, to be filled in place. */
    template <class Type>
    span<Type> add_tensor(const std::string &key, span<const std::int64_t> shape)
    {
        void *data = nullptr;
        check(cz_state_dict_add_tensor(get(), key.c_str(), dtype<Type>,
                                       static_cast<int>(shape.size()), shape.data(), &data));
        return {static_cast<Type *>(data), static_cast<std::size_t>(detail::product(shape))};
    }
    state_dict add_dict(const std::string &key)
    {
        cz_state_dict *child = nullptr;
        check(cz_state_dict_add_dict(get(), key.c_str(), &child));
        return {child, false};
    }

    std::int64_t get_integer(const std::string &key) const
    {
        std::int64_t value = 0;
        check(cz_state_dict_get_integer(get(), key.c_str(), &value));
        return value;
    }
    double get_real(const std::string &key) const
    {
        double value = 0;
        check(cz_state_dict_get_real(get(), key.c_str(), &value));
        return value;
    }
    std::string get_text(const std::string &key) const
    {
        const char *value = nullptr;
        check(cz_state_dict_get_text(get(), key.c_str(), &value));
        return value;
    }
    std::vector<std::string> get_texts(const std::string &key) const
    {
        const char *const *texts = nullptr;
        std::int64_t count = 0;
        check(cz_state_dict_get_texts(get(), key.c_str(), &texts, &count));
        return {texts, texts + count};
    }
    cz_tensor get_tensor(const std::string &key) const
    {
        cz_tensor view = {};
        check(cz_state_dict_get_tensor(get(), key.c_str(), &view));
        return view;
    }
    state_dict get_dict(const std::string &key) const
    {
        const cz_state_dict *child = nullptr;
        check(cz_state_dict_get_dict(get(), key.c_str(), &child));
        return {const_cast<cz_state_dict *>(child), false};
    }
};

namespace detail
{

/** What a function of C returns as a new dictionary, by its last argument. */
template <class Call, class... Arguments> state_dict dict_of(Call &&call, Arguments... arguments)
{
    cz_state_dict *made = nullptr;
    check(call(arguments..., &made));
    return {made, true};
}

} // namespace detail

/* ---- models ---- */

class model : public detail::handle<cz_model, cz_model_destroy>
{
  public:
    model() : handle(made(cz_model_create), true) {}
    using handle::handle;

    /** Containers or arrays of one type; a shape of as many elements, which are std::int64_t; an
     *  empty gradient: none now.
     *  All memory is borrowed. */
    template <class Value, class Gradient>
    void add(const std::string &name, Value &&value, Gradient &&gradient,
             span<const std::int64_t> shape)
    {
        static_assert(detail::stays<Value> && detail::stays<Gradient>,
                      "memory that lives on: no temporary container");
        const auto elements = detail::elements(value);
        const auto gradients = detail::elements(gradient);
        static_assert(std::is_same_v<decltype(elements), decltype(gradients)>,
                      "value and gradient are of one type");
        detail::expect_size("model add", "value", elements.count(), detail::product(shape));
        if (!gradients.empty())
            detail::expect_size("model add", "gradient", gradients.count(), elements.count());
        add(name, elements.data(), gradients.empty() ? nullptr : gradients.data(),
            dtype_of(elements), shape);
    }
    /** Of one dimension. */
    template <class Value, class Gradient>
    void add(const std::string &name, Value &&value, Gradient &&gradient)
    {
        add(name, std::forward<Value>(value), std::forward<Gradient>(gradient),
            {detail::elements(value).count()});
    }
    /** Addresses, such as a tensor's data_ptr(); `gradient` NULL: none now. */
    void add(const std::string &name, void *value, void *gradient, cz_dtype type,
             span<const std::int64_t> shape)
    {
        check(cz_model_add(get(), name.c_str(), value, gradient, type,
                           static_cast<int>(shape.size()), shape.data()));
    }
    void add_tensor(const std::string &name, const cz_tensor &value,
                    const cz_tensor *gradient = nullptr)
    {
        check(cz_model_add_tensor(get(), name.c_str(), &value, gradient));
    }
    template <class Values, class Gradients>
    void add_flat(Values &&values, Gradients &&gradients, span<const std::int64_t> sizes,
                  span<const char *const> names = {})
    {
        const auto from = detail::elements(values);
        const auto to = detail::elements(gradients);
        std::int64_t sum = 0;
        for (const std::int64_t size : sizes)
            sum += size;
        detail::expect_size("model add_flat", "block of values", from.count(), sum);
        if (!to.empty())
            detail::expect_size("model add_flat", "block of gradients", to.count(), sum);
        if (names.data())
            detail::expect_size("model add_flat", "list of names", names.count(), sizes.count());
        check(cz_model_add_flat(get(), from.data(), to.empty() ? nullptr : to.data(),
                                dtype_of(from), sizes.count(), names.data(), sizes.data()));
    }
    /** With names and shapes, packed over layers or not: cz_model_add_views(). */
    template <class Values, class Gradients>
    void add_views(Values &&values, Gradients &&gradients, span<const cz_view> views)
    {
        const auto from = detail::elements(values);
        const auto to = detail::elements(gradients);
        std::int64_t sum = 0;
        for (const cz_view &view : views)
            if (view.dimensions >= 0 && view.dimensions <= CZ_MAX_DIMENSIONS) /* else C says so */
                sum += (view.layers > 0 ? view.layers : 1) *
                       detail::product(span<const std::int64_t>(
                           view.shape, static_cast<std::size_t>(view.dimensions)));
        detail::expect_size("model add_views", "block of values", from.count(), sum);
        if (!to.empty())
            detail::expect_size("model add_views", "block of gradients", to.count(), sum);
        check(cz_model_add_views(get(), from.data(), to.empty() ? nullptr : to.data(),
                                 dtype_of(from), views.data(), views.count()));
    }
    template <class Value>
    void add_buffer(const std::string &name, Value &&value, span<const std::int64_t> shape)
    {
        const auto elements = detail::elements(value);
        detail::expect_size("model add_buffer", "value", elements.count(), detail::product(shape));
        check(cz_model_add_buffer(get(), name.c_str(), elements.data(), dtype_of(elements),
                                  static_cast<int>(shape.size()), shape.data()));
    }
    template <class Value> void add_buffer(const std::string &name, Value &&value)
    {
        add_buffer(name, value, {detail::elements(value).count()});
    }

    cz_model_info get_info() const
    {
        return detail::filled<cz_model_info>(cz_model_get_info, get());
    }
    cz_model_param get_param(std::int64_t index) const
    {
        return detail::filled<cz_model_param>(cz_model_get_param, get(), index);
    }
    std::int64_t find(const std::string &name) const { return cz_model_find(get(), name.c_str()); }
    void set_requires_grad(std::int64_t param, bool requires_grad)
    {
        check(cz_model_set_requires_grad(get(), param, requires_grad));
    }
    void set_gradient(std::int64_t param, void *gradient)
    {
        check(cz_model_set_gradient(get(), param, gradient));
    }
    void set_gradients_flat(std::int64_t param, void *gradients)
    {
        check(cz_model_set_gradients_flat(get(), param, gradients));
    }
    void zero_grad() { check(cz_model_zero_grad(get())); }
    void check_replicas(group &over,
                        const cz_replicas_options &options = fresh<cz_replicas_options>()) const
    {
        check(cz_model_check_replicas(over, get(), &options));
    }

  private:
    template <class Type> static cz_dtype dtype_of(span<Type>) { return dtype<Type>; }
};

/** For `add`: a parameter that has no gradient now. */
template <class Type> inline constexpr span<Type> no_gradient = {};

/** One rank's handle on memory that all ranks see as one. */
class shared : public detail::handle<cz_shared, cz_shared_destroy>
{
  public:
    shared(group &over, std::size_t bytes) : bytes_(bytes)
    {
        static_cast<handle &>(*this) = handle(made(cz_shared_create, over, bytes, &data_), true);
    }
    template <class Type> span<Type> data() const
    {
        return {static_cast<Type *>(data_), bytes_ / sizeof(Type)};
    }

  private:
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
};

/* ---- rules ---- */

/** The state slots that a kernel is given: slots[0] is the first element slot, or a NULL where that
 *  is not in use. */
template <class Type> class slots
{
  public:
    explicit slots(void *const *data) noexcept : data_(data) {}
    Type *operator[](std::size_t i) const { return static_cast<Type *>(data_[i]); }

  private:
    void *const *data_;
};

/** An update rule of the program's own, put together from functions:
 *
 *      czero::rule rule("signum");
 *      rule.hyper("lr", 0.01).slot("momentum");
 *      rule.prepare([](const cz_rule_step &step, double *coefficients, unsigned &) {
 *          coefficients[0] = step.hypers[0];
 *      });
 *      rule.kernel<float>([](std::int64_t count, float *param, const float *gradient,
 *                            czero::slots<float> slots, const double *coefficients, unsigned) {…});
 *
 *  It outlives all that is made with it, and is put together before. All slots are in use, unless
 *  slots_used() says otherwise. Kernels, check, slots_used and sums have no context in C: they are
 *  lambdas that capture nothing. What check, check_param and begin_step throw ends the call on all
 *  ranks, before anything has changed. What a kernel and its like throw comes out of a step when it
 *  is over: the other elements, and the other ranks, have made theirs. (Where ranks are threads,
 *  out of the step that is over first.) */
class rule
{
  public:
    explicit rule(const std::string &name) : own_(std::make_unique<table>())
    {
        cz_rule &c = own_->c;
        c.abi = CZ_RULE_ABI;
        c.size = sizeof c;
        c.name = own_->keep(name);
        c.context = own_.get();
        c.hyper_size = sizeof(cz_hyper_spec);
        c.slot_size = sizeof(cz_slot_spec);
        c.slots_used = [](const double *) { return ~0u; };
        c.prepare = [](const cz_rule_step *step, double *coefficients, unsigned *flags) {
            if (const auto &function = table::of(step->context).prepare)
                quietly([&] { function(*step, coefficients, *flags); });
        };
    }
    operator const cz_rule *() const &noexcept { return own_ ? &own_->c : nullptr; }
    operator const cz_rule *() const && = delete;

    /** One with these limits; `initial` NaN: the caller has to give it. Or any spec. */
    rule &hyper(const std::string &name, double initial,
                double minimum = -std::numeric_limits<double>::infinity(),
                double maximum = std::numeric_limits<double>::infinity())
    {
        return hyper({name.c_str(), initial, minimum, maximum, false, false});
    }
    rule &hyper(const cz_hyper_spec &spec)
    {
        own_->hypers.push_back(spec);
        own_->hypers.back().name = own_->keep(spec.name);
        own_->c.hypers = own_->hypers.data();
        own_->c.hyper_count = static_cast<int>(own_->hypers.size());
        return *this;
    }
    /** The scalar "step" is the step count, which the library keeps. */
    rule &slot(const std::string &name, cz_slot_kind kind = CZ_SLOT_ELEMENT, double initial = 0)
    {
        own_->slots.push_back({own_->keep(name), kind, initial, nullptr});
        own_->c.slots = own_->slots.data();
        own_->c.slot_count = static_cast<int>(own_->slots.size());
        return *this;
    }
    rule &slot(const cz_slot_spec &spec)
    {
        own_->slots.push_back(spec);
        own_->slots.back().name = own_->keep(spec.name);
        if (spec.initial_hyper)
            own_->slots.back().initial_hyper = own_->keep(spec.initial_hyper);
        own_->c.slots = own_->slots.data();
        own_->c.slot_count = static_cast<int>(own_->slots.size());
        return *this;
    }
    rule &state_at_create(bool at_create = true)
    {
        own_->c.state_at_create = at_create;
        return *this;
    }
    /** unsigned(const double *hypers) */
    template <class Function> rule &slots_used(const Function &function)
    {
        (void)held(&function);
        own_->c.slots_used = [](const double *hypers) -> unsigned {
            unsigned used = ~0U;
            quietly([&] { used = held<Function>()(hypers); });
            return used;
        };
        return *this;
    }
    /** void(const double *hypers): throws where values do not go together. */
    template <class Function> rule &check(const Function &function)
    {
        (void)held(&function);
        own_->c.check = [](const double *hypers) {
            return pending().run([&] { held<Function>()(hypers); });
        };
        return *this;
    }
    rule &check_param(std::function<void(const cz_tensor &)> function)
    {
        own_->check_param = std::move(function);
        own_->c.check_param = [](const cz_tensor *param, void *context) {
            return pending().run([&] { table::of(context).check_param(*param); });
        };
        return *this;
    }
    rule &begin_step(std::function<void(cz_optim *, const void *argument)> function)
    {
        own_->begin_step = std::move(function);
        own_->c.begin_step = [](cz_optim *optim, const void *argument, void *context) {
            return pending().run([&] { table::of(context).begin_step(optim, argument); });
        };
        return *this;
    }
    rule &prepare(
        std::function<void(const cz_rule_step &, double *coefficients, unsigned &flags)> function)
    {
        own_->prepare = std::move(function);
        return *this;
    }
    /** void(int64_t count, Type *param, const Type *gradient, slots<Type>, const double
     *  *coefficients, unsigned flags): for parameters, gradients and slots of this type, on the
     *  CPU. */
    template <class Type, class Function> rule &kernel(const Function &function)
    {
        (void)held(&function);
        own_->kernels[dtype<Type>] = [](void *, std::int64_t count, void *param, const void *grad,
                                        void *const *data, const double *coefficients,
                                        unsigned flags) {
            quietly([&] {
                held<Function>()(count, static_cast<Type *>(param), static_cast<const Type *>(grad),
                                 slots<Type>(data), coefficients, flags);
            });
        };
        own_->c.find_kernel = [](const cz_device *device, cz_dtype param, cz_dtype grad,
                                 cz_dtype state, void *context) -> cz_update_kernel {
            return found(device, param, grad, state, table::of(context).kernels);
        };
        return *this;
    }
    /** The first pass of a rule with partial sums: the same with a const param and, at the end,
     *  cz_sum *sums, `count` of them; then `combine` with their values. */
    template <class Type, class Function> rule &sums(int count, const Function &function)
    {
        (void)held(&function);
        own_->sums[dtype<Type>] = [](void *, std::int64_t elements, const void *param,
                                     const void *grad, void *const *data,
                                     const double *coefficients, unsigned flags, cz_sum *to) {
            quietly([&] {
                held<Function>()(elements, static_cast<const Type *>(param),
                                 static_cast<const Type *>(grad), slots<Type>(data), coefficients,
                                 flags, to);
            });
        };
        own_->c.sum_count = count;
        own_->c.find_sums = [](const cz_device *device, cz_dtype param, cz_dtype grad,
                               cz_dtype state, void *context) -> cz_sums_kernel {
            return found(device, param, grad, state, table::of(context).sums);
        };
        return *this;
    }
    rule &combine(std::function<void(const cz_rule_step &, const double *sums, double *coefficients,
                                     unsigned &flags)>
                      function)
    {
        own_->combine = std::move(function);
        own_->c.combine = [](const cz_rule_step *step, const double *sums, double *coefficients,
                             unsigned *flags) {
            quietly([&] { table::of(step->context).combine(*step, sums, coefficients, *flags); });
        };
        return *this;
    }
    /** Makes it a rule that needs whole tensors. */
    rule &update_tensor(std::function<void(const cz_tensor_update &)> function)
    {
        own_->update_tensor = std::move(function);
        own_->c.update_tensor = [](const cz_tensor_update *update) {
            quietly([&] { table::of(update->context).update_tensor(*update); });
        };
        return *this;
    }
    rule &scratch_bytes(std::function<std::size_t(const cz_tensor &)> function)
    {
        own_->scratch_bytes = std::move(function);
        own_->c.scratch_bytes = [](const cz_tensor *param, void *context) {
            std::size_t bytes = std::size_t{1} << 50; /* which cannot be had */
            (void)pending().run([&] { bytes = table::of(context).scratch_bytes(*param); });
            return bytes;
        };
        return *this;
    }
    /** Below which sharding does not cut a parameter: elements, CZ_GRANULE_ROW or
     *  CZ_GRANULE_WHOLE. */
    rule &granule(std::int64_t elements)
    {
        own_->c.granule = elements;
        return *this;
    }
    /** What an update of a whole parameter costs. */
    rule &cost(std::function<double(const cz_tensor &)> function)
    {
        own_->cost = std::move(function);
        own_->c.cost = [](const cz_tensor *param, void *context) {
            double cost = -1; /* which is refused */
            (void)pending().run([&] { cost = table::of(context).cost(*param); });
            return cost;
        };
        return *this;
    }

    /** Make it known by its name for the rest of the process, for which it then lives. */
    static const cz_rule *register_rule(rule &&done)
    {
        czero::check(cz_rule_register(done));
        return &done.own_.release()->c;
    }

    /** What functions that can say so have thrown, on this thread: those that are called inside
     *  calls of the program. */
    static detail::thrown &pending() { return detail::pending(); }

  private:
    struct table {
        cz_rule c = {};
        std::vector<std::unique_ptr<std::string>> words;
        std::vector<cz_hyper_spec> hypers;
        std::vector<cz_slot_spec> slots;
        std::map<cz_dtype, cz_update_kernel> kernels;
        std::map<cz_dtype, cz_sums_kernel> sums;
        std::function<void(const cz_tensor &)> check_param;
        std::function<void(cz_optim *, const void *)> begin_step;
        std::function<void(const cz_rule_step &, double *, unsigned &)> prepare;
        std::function<void(const cz_rule_step &, const double *, double *, unsigned &)> combine;
        std::function<void(const cz_tensor_update &)> update_tensor;
        std::function<std::size_t(const cz_tensor &)> scratch_bytes;
        std::function<double(const cz_tensor &)> cost;

        const char *keep(const std::string &word)
        {
            return words.emplace_back(std::make_unique<std::string>(word))->c_str();
        }
        static const table &of(void *context) { return *static_cast<const table *>(context); }
    };

    /** The one lambda of its type, which captures nothing; given once, by address. */
    template <class Function> static const Function &held(const Function *given = nullptr)
    {
        static_assert(std::is_empty_v<Function>, "a lambda that captures nothing");
        static const Function one = *given;
        return one;
    }
    template <class Function> static void quietly(Function &&function)
    {
        (void)detail::thrown_by_kernels().run(std::forward<Function>(function));
    }
    template <class Kernel>
    static Kernel found(const cz_device *device, cz_dtype param, cz_dtype grad, cz_dtype state,
                        const std::map<cz_dtype, Kernel> &all)
    {
        const auto place = all.find(param);
        return device == cz_device_cpu() && param == grad && grad == state && place != all.end()
                   ? place->second
                   : nullptr;
    }

    std::unique_ptr<table> own_;
};

namespace detail
{

/** The end of a call in which a rule may have run. */
inline void check_rule(cz_status status)
{
    rule::pending().check(status);
}

/** And kernels, in which a closure may have run before. */
inline void check_step(cz_status status, thrown *closure = nullptr)
{
    if (closure && status != CZ_OK)
        if (const std::exception_ptr kept = closure->take())
            std::rethrow_exception(kept);
    if (status == CZ_OK)
        (void)rule::pending().take();
    else
        rule::pending().check(status);
    thrown_by_kernels().check_always(CZ_OK);
}

/** A step with a closure of C++: of the loss, or of nothing. */
template <class Closure> struct closure_of {
    Closure &function;
    thrown exceptions;

    cz_step_options with(cz_step_options options)
    {
        options.closure_context = this;
        options.closure = [](double *loss, void *context) {
            closure_of *mine = static_cast<closure_of *>(context);
            return mine->exceptions.run([&] {
                if constexpr (std::is_void_v<decltype(mine->function())> ||
                              std::is_same_v<decltype(mine->function()), cz_status>)
                    return mine->function();
                else
                    *loss = static_cast<double>(mine->function());
            });
        };
        return options;
    }
};

/** One step by a function of C. */
template <class Object>
cz_step_result step_of(cz_status (*call)(Object *, const cz_step_options *, cz_step_result *),
                       Object *optimizer, const cz_step_options *options, thrown *closure = nullptr)
{
    cz_step_result result = fresh<cz_step_result>();
    check_step(call(optimizer, options, &result), closure);
    return result;
}

template <class Object, class Closure>
cz_step_result step_of(cz_status (*call)(Object *, const cz_step_options *, cz_step_result *),
                       Object *optimizer, const cz_step_options *options, Closure &closure)
{
    closure_of<Closure> own{closure, {}};
    const cz_step_options with = own.with(*options);
    return step_of(call, optimizer, &with, &own.exceptions);
}

} // namespace detail

/* ---- optimizers ---- */

/** An unsharded optimizer, or the local one of a sharded one. */
class optim : public detail::handle<cz_optim, cz_optim_destroy>
{
  public:
    using handle::handle;
    optim(cz_model *over, const cz_rule *rule, const hypers &values = {},
          const cz_optim_options &options = fresh<cz_optim_options>())
    {
        cz_optim *made = nullptr;
        detail::check_rule(cz_optim_create(&made, over, rule, values, &options));
        static_cast<handle &>(*this) = handle(made, true);
        model_ = over;
    }
    /** Borrowed: one over `model`, which may be NULL. */
    optim(cz_optim *object, const cz_model *model) noexcept : handle(object, false), model_(model)
    {
    }

    void add_param_group(const param_group &group)
    {
        const cz_param_group given = group;
        detail::check_rule(cz_optim_add_param_group(get(), &given));
    }
    cz_step_result step(const cz_step_options &options = fresh<cz_step_options>())
    {
        return detail::step_of(cz_optim_step, get(), &options);
    }
    /** With a closure, of nothing or of the loss. */
    template <class Closure, class = std::enable_if_t<std::is_invocable_v<Closure &>>>
    cz_step_result step(Closure &&closure,
                        const cz_step_options &options = fresh<cz_step_options>())
    {
        return detail::step_of(cz_optim_step, get(), &options, closure);
    }
    /** What is evaluated in the place of what trains, or with false the other way. */
    void evaluate(bool evaluated) { check(cz_optim_evaluate(get(), evaluated)); }
    void zero_grad(bool to_none = false) { check(cz_optim_zero_grad(get(), to_none)); }
    cz_optim_info get_info() const
    {
        return detail::filled<cz_optim_info>(cz_optim_get_info, get());
    }
    std::vector<std::int64_t> group_params(std::int64_t group) const
    {
        return detail::listed("optim group_params", [&](std::int64_t *params, std::int64_t room) {
            return cz_optim_group_params(get(), group, params, room);
        });
    }
    void set_hyper(std::int64_t group, const std::string &name, double value)
    {
        detail::check_rule(cz_optim_set_hyper(get(), group, name.c_str(), value));
    }
    double get_hyper(std::int64_t group, const std::string &name) const
    {
        double value = 0;
        check(cz_optim_get_hyper(get(), group, name.c_str(), &value));
        return value;
    }
    void add_hyper(std::int64_t group, const std::string &name, double value)
    {
        check(cz_optim_add_hyper(get(), group, name.c_str(), value));
    }
    const char *hyper_name(std::int64_t group, int index) const
    {
        return cz_optim_hyper_name(get(), group, index);
    }
    template <class Type>
    span<const Type> state(std::int64_t param, const std::string &slot,
                           std::int64_t begin = 0) const
    {
        const void *data = nullptr;
        std::int64_t count = 0;
        cz_model_param of = fresh<cz_model_param>();
        if (model_ && cz_model_get_param(model_, param, &of) == CZ_OK)
            detail::expect_type("optim state", of.value->dtype, dtype<Type>);
        check(cz_optim_state(get(), param, slot.c_str(), begin, &data, &count));
        return {static_cast<const Type *>(data), static_cast<std::size_t>(data ? count : 0)};
    }
    double scalar(std::int64_t param, const std::string &slot) const
    {
        double value = 0;
        check(cz_optim_scalar(get(), param, slot.c_str(), &value));
        return value;
    }
    czero::state_dict state_dict() const { return detail::dict_of(cz_optim_state_dict, get()); }
    void load_state_dict(const cz_state_dict *dict,
                         const cz_optim_load_options &options = fresh<cz_optim_load_options>())
    {
        detail::check_rule(cz_optim_load_state_dict(get(), dict, &options));
    }
    std::array<std::uint64_t, 2> fingerprint() const
    {
        std::array<std::uint64_t, 2> print = {};
        check(cz_optim_fingerprint(get(), print.data()));
        return print;
    }
    /** Borrowed; to be joined. */
    cz_joinable joinable() { return detail::filled<cz_joinable>(cz_optim_joinable, get()); }

  private:
    const cz_model *model_ = nullptr;
};

/** Optimizers that step parameter by parameter, inside the backward pass. */
class in_backward : public detail::handle<cz_in_backward, cz_in_backward_destroy>
{
  public:
    using released_function = std::function<void(std::int64_t param, void *gradient)>;

    /** @param options  all but `released` and its context */
    explicit in_backward(span<cz_optim *const> optims, released_function released = {},
                         cz_in_backward_options options = fresh<cz_in_backward_options>())
        : own_(std::make_unique<context>())
    {
        own_->released = std::move(released);
        if (own_->released) {
            options.context = own_.get();
            options.released = [](std::int64_t param, void *gradient, void *data) {
                context *mine = static_cast<context *>(data);
                (void)detail::thrown_by_kernels().run([&] { mine->released(param, gradient); });
            };
        }
        static_cast<handle &>(*this) =
            handle(made(cz_in_backward_create, optims.data(), optims.count(), &options), true);
    }
    in_backward(in_backward &&) noexcept = default;
    in_backward &operator=(in_backward &&other) noexcept
    {
        if (this == &other)
            return *this;
        reset(); /* before what it calls */
        own_ = std::move(other.own_);
        handle::operator=(std::move(other));
        return *this;
    }
    ~in_backward() { reset(); }

    void begin(const void *argument = nullptr)
    {
        detail::check_rule(cz_in_backward_begin(get(), argument));
    }
    void mark_ready(std::int64_t param, void *gradient = nullptr)
    {
        detail::check_step(cz_in_backward_mark_ready(get(), param, gradient));
    }
    cz_step_result end(const cz_step_options &options = fresh<cz_step_options>())
    {
        return detail::step_of(cz_in_backward_end, get(), &options);
    }

  private:
    struct context {
        released_function released;
        detail::thrown thrown;
    };
    std::unique_ptr<context> own_;
};

/* ---- parts ---- */

/** The parts of one rank. */
class parts : public detail::handle<cz_parts, cz_parts_destroy>
{
  public:
    parts(group &over, cz_model *model, int count)
    {
        cz_parts_options options = fresh<cz_parts_options>();
        options.count = count;
        static_cast<handle &>(*this) = handle(made(cz_parts_create, over, model, &options), true);
    }

    /** The number of this rank's i-th part, -1 beyond its last; and all of them. */
    int own(int i) const noexcept { return cz_parts_own(get(), i); }
    std::vector<int> own() const
    {
        std::vector<int> all;
        for (int i = 0; own(i) >= 0; i++)
            all.push_back(own(i));
        return all;
    }
    bool is_last() const noexcept { return cz_parts_is_last(get()); }
    void add() { check(cz_parts_add(get())); }
    void restart() { check(cz_parts_restart(get())); }
    /** One for each of this rank's parts; none: they count alike. */
    void set_weights(span<const double> weights)
    {
        if (weights.data())
            detail::expect_size("parts set_weights", "list of weights", weights.count(),
                                get_info().own_count);
        check(cz_parts_set_weights(get(), weights.data()));
    }
    /** `count` numbers of each of this rank's parts; returns `count` means. */
    std::vector<double> mean(span<const double> values, std::int64_t count = 1)
    {
        std::vector<double> means(count > 0 ? static_cast<std::size_t>(count) : 0);
        detail::expect_size("parts mean", "list of values", values.count(),
                            count * get_info().own_count);
        check(cz_parts_mean(get(), values.data(), count, means.data()));
        return means;
    }
    static std::uint64_t stream(std::int64_t step, int part) noexcept
    {
        return cz_parts_stream(step, part);
    }
    /** void(int part); named so because czero::check() throws. */
    template <class Run> void check_runs(Run &&run)
    {
        struct context {
            std::remove_reference_t<Run> &run;
            detail::thrown thrown;
        } own{run, {}};
        own.thrown.check(cz_parts_check(
            get(),
            [](int part, void *data) {
                context *mine = static_cast<context *>(data);
                return mine->thrown.run([&] { return mine->run(part); });
            },
            &own));
    }
    cz_parts_info get_info() const
    {
        return detail::filled<cz_parts_info>(cz_parts_get_info, get());
    }
};

/* ---- data-parallel models ---- */

/** One bucket of one pass, as a hook sees it. Borrowed. */
class bucket
{
  public:
    bucket(cz_bucket *object, std::shared_ptr<detail::thrown> thrown) noexcept
        : object_(object), thrown_(std::move(thrown))
    {
    }
    operator cz_bucket *() const noexcept { return object_; }

    cz_bucket_info get_info() const
    {
        return detail::filled<cz_bucket_info>(cz_bucket_get_info, object_);
    }
    cz_bucket_param get_param(std::int64_t place) const
    {
        return detail::filled<cz_bucket_param>(cz_bucket_get_param, object_, place);
    }
    /** Its buffer, of this type. */
    template <class Type> span<Type> buffer() const
    {
        const cz_bucket_info info = get_info();
        detail::expect_type("bucket buffer", info.dtype, dtype<Type>);
        return {static_cast<Type *>(info.buffer), static_cast<std::size_t>(info.count)};
    }
    /** Where its operations go; they are only started. */
    czero::group group() const { return {get_info().group, false}; }
    void reduce(cz_reduction reduction) { check(cz_bucket_reduce(object_, reduction)); }
    template <class Type> span<Type> memory(std::size_t count)
    {
        void *data = nullptr;
        check(cz_bucket_memory(object_, cz_device_cpu(), count * sizeof(Type), &data));
        return {static_cast<Type *>(data), count};
    }
    template <class Type> void replace_buffer(span<Type> buffer)
    {
        detail::expect_size("bucket replace_buffer", "buffer", buffer.count(), get_info().count);
        check(cz_bucket_replace_buffer(object_, buffer.data(), dtype<Type>));
    }
    /** `last(cz_status)`, once all that was started has ended: of nothing or of a status. */
    template <class Last> void then(Last last)
    {
        struct context {
            Last last;
            std::shared_ptr<detail::thrown> thrown;
        };
        auto own = std::make_unique<context>(context{std::move(last), thrown_});
        check(cz_bucket_then(
            object_,
            [](cz_status status, void *data) {
                const std::unique_ptr<context> mine(static_cast<context *>(data));
                const cz_status result = mine->thrown->run([&] { return mine->last(status); });
                return status != CZ_OK ? status : result;
            },
            own.get()));
        own.release();
    }

  private:
    cz_bucket *object_;
    std::shared_ptr<detail::thrown> thrown_;
};

/** One rank's part of a data-parallel model. */
class ddp : public detail::handle<cz_ddp, cz_ddp_destroy>
{
  public:
    ddp(group &over, cz_model *model, const cz_ddp_options &options = fresh<cz_ddp_options>())
        : handle(made(cz_ddp_create, over, model, &options), true)
    {
    }

    void set_weight(double weight) { check(cz_ddp_set_weight(get(), weight)); }
    void begin(bool sync = true) { end(cz_ddp_begin(get(), sync)); }
    void mark_ready(std::int64_t param) { check(cz_ddp_mark_ready(get(), param)); }
    void set_uses(std::int64_t param, int uses) { check(cz_ddp_set_uses(get(), param, uses)); }
    void finish() { end(cz_ddp_finish(get())); }
    void abandon() { end(cz_ddp_abandon(get())); }
    void set_passes(std::int64_t passes) { check(cz_ddp_set_passes(get(), passes)); }
    cz_joinable joinable() { return detail::filled<cz_joinable>(cz_ddp_joinable, get()); }
    void step_in_backward(cz_in_backward *optims) { check(cz_ddp_step_in_backward(get(), optims)); }

    /** A hook: `run(czero::bucket &)`, of nothing or of a status. What it throws comes out of
     *  finish(), and fails the pass on all ranks. */
    template <class Run> void register_hook(const std::string &name, cz_hook_result result, Run run)
    {
        struct context {
            Run run;
            std::shared_ptr<detail::thrown> thrown;
        };
        auto own = std::make_unique<context>(context{std::move(run), thrown_});
        cz_hook hook = fresh<cz_hook>();
        hook.name = name.c_str();
        hook.result = result;
        hook.state = own.get();
        hook.run = [](void *state, cz_bucket *object) {
            context *mine = static_cast<context *>(state);
            bucket here(object, mine->thrown);
            return mine->thrown->run([&] { return mine->run(here); });
        };
        hook.release = [](void *state) { delete static_cast<context *>(state); };
        check(cz_ddp_register_hook(get(), &hook));
        own.release(); /* the ddp has it */
    }
    void register_hook(const cz_hook &hook) { check(cz_ddp_register_hook(get(), &hook)); }
    void register_hook_by_name(const std::string &name, void *state = nullptr)
    {
        check(cz_ddp_register_hook_by_name(get(), name.c_str(), state));
    }

    cz_ddp_info get_info() const { return detail::filled<cz_ddp_info>(cz_ddp_get_info, get()); }
    std::vector<std::int64_t> bucket_params(int bucket) const
    {
        return detail::listed("ddp bucket_params", [&](std::int64_t *params, std::int64_t room) {
            return cz_ddp_bucket_params(get(), bucket, params, room);
        });
    }

  private:
    /* Of a pass, in which hooks and steps may have run. */
    void end(cz_status status)
    {
        if (thrown_)
            if (const std::exception_ptr kept = thrown_->take(); kept && status != CZ_OK)
                std::rethrow_exception(kept);
        detail::check_step(status);
    }
    std::shared_ptr<detail::thrown> thrown_ = std::make_shared<detail::thrown>();
};

/* ---- sharded optimizers ---- */

/** Who owns what. Borrowed. */
class shard_map
{
  public:
    explicit shard_map(const cz_shard_map *map) noexcept : map_(map) {}
    operator const cz_shard_map *() const noexcept { return map_; }

    /** Those of a rank, in the map's order. */
    std::vector<cz_span> spans(int rank) const
    {
        std::vector<cz_span> all;
        cz_span_iterator iterator;
        cz_span span = {};
        cz_span_iterate(map_, rank, &iterator);
        while (cz_span_next(&iterator, &span))
            all.push_back(span);
        return all;
    }

  private:
    const cz_shard_map *map_;
};

/** One rank's part of a sharded optimizer. */
class zero : public detail::handle<cz_zero, cz_zero_destroy>
{
  public:
    /** Of parameters_as_bucket_view: where a value is from now on. Must not throw. */
    using moved_function = std::function<void(std::int64_t param, void *value)>;

    zero(group &over, cz_model *model, const cz_rule *rule, const hypers &values = {},
         const cz_zero_options &options = fresh<cz_zero_options>(), moved_function moved = {})
    {
        cz_zero *made = nullptr;
        cz_zero_options given = options;
        if (moved) {
            moved_ = std::make_unique<moved_function>(std::move(moved));
            given.moved_context = moved_.get();
            given.moved = [](std::int64_t param, void *value, void *context) {
                (*static_cast<moved_function *>(context))(param, value);
            };
        }
        detail::check_rule(cz_zero_create(&made, over, model, rule, values, &given));
        static_cast<handle &>(*this) = handle(made, true);
    }
    zero(zero &&) noexcept = default;
    zero &operator=(zero &&other) noexcept
    {
        if (this == &other)
            return *this;
        reset(); /* before what it tells */
        moved_ = std::move(other.moved_);
        handle::operator=(std::move(other));
        return *this;
    }
    ~zero() { reset(); }

    void broadcast_parameters(int root = 0) { check(cz_zero_broadcast_parameters(get(), root)); }
    void check_replicas() { check(cz_zero_check_replicas(get())); }
    cz_step_result step(const cz_step_options &options)
    {
        return detail::step_of(cz_zero_step, get(), &options);
    }
    /** Also the result of a step that a pass has made (option overlap). */
    cz_step_result step() { return detail::step_of(cz_zero_step, get(), nullptr); }
    /** With a closure, of nothing or of the loss. */
    template <class Closure, class = std::enable_if_t<std::is_invocable_v<Closure &>>>
    cz_step_result step(Closure &&closure,
                        const cz_step_options &options = fresh<cz_step_options>())
    {
        return detail::step_of(cz_zero_step, get(), &options, closure);
    }
    cz_joinable joinable() { return detail::filled<cz_joinable>(cz_zero_joinable, get()); }
    void set_overlap(cz_overlap overlap) { check(cz_zero_set_overlap(get(), overlap, nullptr)); }
    /** With the options of the steps inside passes. */
    void set_overlap(cz_overlap overlap, const cz_step_options &options)
    {
        check(cz_zero_set_overlap(get(), overlap, &options));
    }
    void set_weight(double weight) { check(cz_zero_set_weight(get(), weight)); }
    void wait_param(std::int64_t param) { check(cz_zero_wait_param(get(), param)); }
    /** What is evaluated in the place of what trains, or with false the other way. */
    void evaluate(bool evaluated) { check(cz_zero_evaluate(get(), evaluated)); }
    void zero_grad(bool to_none = false) { check(cz_zero_zero_grad(get(), to_none)); }
    void add_param_group(const param_group &group)
    {
        const cz_param_group given = group;
        detail::check_rule(cz_zero_add_param_group(get(), &given));
    }
    void reshard(cz_partition partition, span<const int> owners = {})
    {
        check(cz_zero_reshard(get(), partition, owners.data(), owners.count()));
    }
    czero::shard_map shard_map() const { return czero::shard_map(get_info().shard_map); }
    /** Borrowed: for hyper-parameters and schedulers. */
    optim local_optim() const { return {cz_zero_local_optim(get()), get_info().model}; }
    cz_zero_info get_info() const { return detail::filled<cz_zero_info>(cz_zero_get_info, get()); }
    void consolidate_state_dict(int to = 0) { check(cz_zero_consolidate_state_dict(get(), to)); }
    czero::state_dict state_dict() { return detail::dict_of(cz_zero_state_dict, get()); }
    void load_state_dict(const cz_state_dict *dict)
    {
        detail::check_rule(cz_zero_load_state_dict(get(), dict));
    }
    std::array<std::uint64_t, 2> fingerprint()
    {
        std::array<std::uint64_t, 2> print = {};
        check(cz_zero_fingerprint(get(), print.data()));
        return print;
    }
    void check_fingerprint() { check(cz_zero_check_fingerprint(get())); }
    cz_trace_totals trace(cz_trace_point point) const
    {
        return detail::filled<cz_trace_totals>(cz_zero_trace, get(), point);
    }

  private:
    std::unique_ptr<moved_function> moved_;
};

/* ---- states of hooks ---- */

class powersgd : public detail::handle<cz_powersgd, cz_powersgd_destroy>
{
  public:
    explicit powersgd(const cz_model *model,
                      const cz_powersgd_options &options = fresh<cz_powersgd_options>())
        : handle(made(cz_powersgd_create, model, &options), true)
    {
    }
    cz_powersgd_stats get_stats() const
    {
        return detail::filled<cz_powersgd_stats>(cz_powersgd_get_stats, get());
    }
    czero::state_dict state_dict() const { return detail::dict_of(cz_powersgd_state_dict, get()); }
    void load_state_dict(const cz_state_dict *dict)
    {
        check(cz_powersgd_load_state_dict(get(), dict));
    }
};

/** The hook of that name, to be the state of one that wraps others. */
inline cz_hook hook_find(const std::string &name, const cz_model *model = nullptr,
                         void *state = nullptr)
{
    cz_hook hook = fresh<cz_hook>();
    check(cz_hook_find(&hook, name.c_str(), model, state));
    return hook;
}

/* ---- uneven inputs ---- */

/** Ranks whose inputs are used up go on taking part:
 *
 *      czero::join::run(world, {ddp.joinable(), zero.joinable()}, [&](czero::join &) {
 *          while (has_input())
 *              train_one_batch();
 *      }); */
class join
{
  public:
    join(group &over, span<const cz_joinable> joinables,
         const cz_join_options &options = fresh<cz_join_options>())
    {
        check(cz_join_begin(&object_, over, joinables.data(), static_cast<int>(joinables.size()),
                            &options));
    }
    join(const join &) = delete;
    join &operator=(const join &) = delete;
    /** Without end() the body has failed, which all ranks learn. */
    ~join()
    {
        if (object_)
            (void)cz_join_end(&object_, cz_fail_text(CZ_ERR_STATE, "the join was left early"));
    }
    operator cz_join *() const noexcept { return object_; }

    void notify(int number) { check(cz_join_notify(object_, number)); }
    /** Waits until no rank has inputs any more. */
    void end() { check(cz_join_end(&object_, CZ_OK)); }
    cz_join_info get_info() const
    {
        return detail::filled<cz_join_info>(cz_join_get_info, object_);
    }

    /** Begin, `body(czero::join &)`, end. What the body throws comes out here, and ends it on all
     *  ranks. */
    template <class Body>
    static void run(group &over, span<const cz_joinable> joinables, Body &&body,
                    const cz_join_options &options = fresh<cz_join_options>())
    {
        join own(over, joinables, options);
        detail::thrown thrown;
        const cz_status status = thrown.run([&] { return body(own); });
        const cz_status ended = cz_join_end(&own.object_, status);
        if (const std::exception_ptr kept = thrown.take(); kept && ended != CZ_OK)
            std::rethrow_exception(kept);
        check(ended);
    }

  private:
    cz_join *object_ = nullptr;
};

/** Something of the program's own with collective calls, to be joined; it calls the join's notify()
 *  before them. It stays where it is while it is joined. */
class joinable_object
{
  public:
    explicit joinable_object(std::string name) : name_(std::move(name)) {}
    joinable_object(const joinable_object &) = delete;
    joinable_object &operator=(const joinable_object &) = delete;
    virtual ~joinable_object() = default;

    virtual void enter(cz_join *, int number) { (void)number; }
    virtual void shadow(cz_join *) {}
    virtual void finish(cz_join *) {}
    virtual void abandon(cz_status) noexcept {}

    cz_joinable joinable()
    {
        cz_joinable out = fresh<cz_joinable>();
        out.name = name_.c_str();
        out.object = this;
        out.enter = [](void *object, cz_join *join, int number) {
            return run(object, [&](joinable_object &mine) { mine.enter(join, number); });
        };
        out.shadow = [](void *object, cz_join *join) {
            return run(object, [&](joinable_object &mine) { mine.shadow(join); });
        };
        out.finish = [](void *object, cz_join *join) {
            return run(object, [&](joinable_object &mine) { mine.finish(join); });
        };
        out.abandon = [](void *object, cz_status status) {
            static_cast<joinable_object *>(object)->abandon(status);
        };
        return out;
    }

  private:
    template <class Function> static cz_status run(void *object, Function &&function)
    {
        return detail::pending().run([&] { function(*static_cast<joinable_object *>(object)); });
    }
    std::string name_;
};

/* ---- schedules ---- */

/** A learning-rate scheduler over an optimizer, zero.local_optim() for a sharded one. */
class sched : public detail::handle<cz_sched, cz_sched_destroy>
{
  public:
    using function = std::function<double(std::int64_t epoch, std::int64_t param_group)>;

    static sched create_step(cz_optim *optim, std::int64_t step_size, double gamma,
                             const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {made(cz_sched_create_step, optim, step_size, gamma, &options), {}};
    }
    static sched create_multi_step(cz_optim *optim, span<const std::int64_t> milestones,
                                   double gamma,
                                   const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {made(cz_sched_create_multi_step, optim, milestones.data(), milestones.count(),
                     gamma, &options),
                {}};
    }
    static sched create_exponential(cz_optim *optim, double gamma,
                                    const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {made(cz_sched_create_exponential, optim, gamma, &options), {}};
    }
    static sched create_constant(cz_optim *optim, double factor, std::int64_t total_iters,
                                 const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {made(cz_sched_create_constant, optim, factor, total_iters, &options), {}};
    }
    static sched create_linear(cz_optim *optim, double start_factor, double end_factor,
                               std::int64_t total_iters,
                               const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {
            made(cz_sched_create_linear, optim, start_factor, end_factor, total_iters, &options),
            {}};
    }
    static sched create_polynomial(cz_optim *optim, std::int64_t total_iters, double power,
                                   const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {made(cz_sched_create_polynomial, optim, total_iters, power, &options), {}};
    }
    static sched create_cosine(cz_optim *optim, std::int64_t t_max, double eta_min = 0,
                               const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {made(cz_sched_create_cosine, optim, t_max, eta_min, &options), {}};
    }
    static sched create_warm_restarts(cz_optim *optim, std::int64_t t_0, std::int64_t t_mult = 1,
                                      double eta_min = 0,
                                      const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return {made(cz_sched_create_warm_restarts, optim, t_0, t_mult, eta_min, &options), {}};
    }
    static sched create_lambda(cz_optim *optim, function factor,
                               const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return with(std::move(factor), [&](cz_sched **out, void *context) {
            return cz_sched_create_lambda(out, optim, call, context, &options);
        });
    }
    static sched create_multiplicative(cz_optim *optim, function factor,
                                       const cz_sched_options &options = fresh<cz_sched_options>())
    {
        return with(std::move(factor), [&](cz_sched **out, void *context) {
            return cz_sched_create_multiplicative(out, optim, call, context, &options);
        });
    }
    static sched create_one_cycle(
        cz_optim *optim, double max_lr, std::int64_t total_steps,
        const cz_sched_one_cycle_options &options = fresh<cz_sched_one_cycle_options>())
    {
        return {made(cz_sched_create_one_cycle, optim, max_lr, total_steps, &options), {}};
    }
    static sched create_cyclic(
        cz_optim *optim, double base_lr, double max_lr,
        const cz_sched_cyclic_options &options = fresh<cz_sched_cyclic_options>())
    {
        return {made(cz_sched_create_cyclic, optim, base_lr, max_lr, &options), {}};
    }
    static sched create_plateau(cz_optim *optim, const cz_sched_plateau_options &options =
                                                     fresh<cz_sched_plateau_options>())
    {
        return {made(cz_sched_create_plateau, optim, &options), {}};
    }
    /** The members are the new one's; if it fails they are the caller's still. */
    static sched create_sequential(span<sched> members, span<const std::int64_t> milestones)
    {
        detail::expect_size("sched create_sequential", "list of milestones", milestones.count(),
                            members.count() - 1);
        return of_members(members, [&](cz_sched **out, cz_sched **list, std::int64_t count) {
            return cz_sched_create_sequential(out, list, count, milestones.data());
        });
    }
    static sched create_chained(span<sched> members)
    {
        return of_members(members, cz_sched_create_chained);
    }

    sched(sched &&) noexcept = default;
    sched &operator=(sched &&other) noexcept
    {
        if (this == &other)
            return *this;
        reset(); /* before what it calls */
        functions_ = std::move(other.functions_);
        handle::operator=(std::move(other));
        return *this;
    }
    ~sched() { reset(); }

    void step() { end(cz_sched_step(get())); }
    void step_to(double epoch) { end(cz_sched_step_to(get(), epoch)); }
    void step_metric(double metric) { end(cz_sched_step_metric(get(), metric)); }
    double last_lr(std::int64_t param_group = 0) const noexcept
    {
        return cz_sched_last_lr(get(), param_group);
    }
    czero::state_dict state_dict() const { return detail::dict_of(cz_sched_state_dict, get()); }
    void load_state_dict(const cz_state_dict *dict) { end(cz_sched_load_state_dict(get(), dict)); }

  private:
    struct context {
        function factor;
        detail::thrown thrown;
    };
    using contexts = std::vector<std::shared_ptr<context>>;

    sched(cz_sched *object, contexts functions)
        : handle(object, true), functions_(std::move(functions))
    {
    }
    static double call(std::int64_t epoch, std::int64_t param_group, void *data)
    {
        context *mine = static_cast<context *>(data);
        double factor = std::numeric_limits<double>::quiet_NaN(); /* which the rule refuses */
        (void)mine->thrown.run([&] { factor = mine->factor(epoch, param_group); });
        return factor;
    }
    template <class Call> static sched with(function factor, Call &&call)
    {
        cz_sched *object = nullptr;
        auto own = std::make_shared<context>();
        own->factor = std::move(factor);
        own->thrown.check(call(&object, own.get()));
        return {object, {own}};
    }
    template <class Call> static sched of_members(span<sched> members, Call &&call)
    {
        cz_sched *object = nullptr;
        std::vector<cz_sched *> list;
        contexts functions;
        for (sched &member : members) {
            list.push_back(member.get());
            functions.insert(functions.end(), member.functions_.begin(), member.functions_.end());
        }
        const cz_status status = call(&object, list.data(), members.count());
        sched whole(status == CZ_OK ? object : nullptr, functions);
        whole.end(status);
        for (sched &member : members)
            (void)member.release();
        return whole;
    }
    void end(cz_status status)
    {
        for (const auto &one : functions_)
            if (const std::exception_ptr kept = one->thrown.take(); kept && status != CZ_OK)
                std::rethrow_exception(kept);
        check(status);
    }

    contexts functions_;
};

/* ---- averaging ---- */

class averager : public detail::handle<cz_averager, cz_averager_destroy>
{
  public:
    using handle::handle;
    static averager create_periodic(
        group &over, cz_model *model, std::int64_t period,
        const cz_averager_options &options = fresh<cz_averager_options>())
    {
        return {made(cz_averager_create_periodic, over, model, period, &options), true};
    }
    static averager create_hierarchical(
        group &over, cz_model *model, span<const cz_averager_level> levels,
        const cz_averager_options &options = fresh<cz_averager_options>())
    {
        return {made(cz_averager_create_hierarchical, over, model, levels.data(), levels.count(),
                     &options),
                true};
    }
    /** How many ranks were averaged; 0: none. */
    int average()
    {
        int ranks = 0;
        check(cz_averager_average(get(), &ranks));
        return ranks;
    }
    czero::state_dict state_dict() const { return detail::dict_of(cz_averager_state_dict, get()); }
    void load_state_dict(const cz_state_dict *dict)
    {
        check(cz_averager_load_state_dict(get(), dict));
    }
};

/** An optimizer that steps on this rank's own gradients, and an averager; both are borrowed. */
class post_local_optim : public detail::handle<cz_post_local_optim, cz_post_local_optim_destroy>
{
  public:
    post_local_optim(cz_optim *optim, cz_averager *averager)
        : handle(made(cz_post_local_optim_create, optim, averager), true)
    {
    }
    cz_step_result step(const cz_step_options &options = fresh<cz_step_options>())
    {
        return detail::step_of(cz_post_local_optim_step, get(), &options);
    }
    template <class Closure, class = std::enable_if_t<std::is_invocable_v<Closure &>>>
    cz_step_result step(Closure &&closure,
                        const cz_step_options &options = fresh<cz_step_options>())
    {
        return detail::step_of(cz_post_local_optim_step, get(), &options, closure);
    }
    czero::state_dict state_dict() const
    {
        return detail::dict_of(cz_post_local_optim_state_dict, get());
    }
    void load_state_dict(const cz_state_dict *dict, bool begin = false)
    {
        check(cz_post_local_optim_load_state_dict(get(), dict, begin));
    }
};

/* ---- checkpoints ---- */

/** What was loaded, with its dictionaries. */
struct load_result {
    std::int64_t step = -1;
    std::int64_t generation = -1;
    std::int64_t world_size = 0;
    state_dict common{nullptr, false};
    state_dict own{nullptr, false};
};

/** One rank's part of the checkpoints in a folder. */
class checkpoint : public detail::handle<cz_checkpoint, cz_checkpoint_destroy>
{
  public:
    checkpoint(group &over, const std::string &folder, const cz_checkpoint_options &options)
        : handle(made(cz_checkpoint_create, over, folder.c_str(), &options), true)
    {
    }
    /** Of a sharded optimizer and its model. */
    checkpoint(group &over, const std::string &folder, cz_zero *zero)
        : checkpoint(over, folder, with(zero))
    {
    }

    void save(const cz_save_options &options) { check(cz_checkpoint_save(get(), &options)); }
    void save(std::int64_t step, const cz_state_dict *common = nullptr,
              const cz_state_dict *own = nullptr)
    {
        save(save_of(step, common, own));
    }
    void save_async(const cz_save_options &options)
    {
        check(cz_checkpoint_save_async(get(), &options));
    }
    void save_async(std::int64_t step, const cz_state_dict *common = nullptr,
                    const cz_state_dict *own = nullptr)
    {
        save_async(save_of(step, common, own));
    }
    void wait() { check(cz_checkpoint_wait(get())); }
    load_result load(const cz_load_options &options = fresh<cz_load_options>())
    {
        cz_load_result result = fresh<cz_load_result>();
        check(cz_checkpoint_load(get(), &options, &result));
        return owned(result);
    }
    /** cz_checkpoint_export() and _import(), whose names are words of C++. */
    void export_to(const std::string &path,
                   const cz_export_options &options = fresh<cz_export_options>())
    {
        check(cz_checkpoint_export(get(), path.c_str(), &options));
    }
    load_result import_from(const std::string &path,
                            const cz_load_options &options = fresh<cz_load_options>())
    {
        cz_load_result result = fresh<cz_load_result>();
        check(cz_checkpoint_import(get(), path.c_str(), &options, &result));
        return owned(result);
    }
    const char *notes() const noexcept { return cz_checkpoint_notes(get()); }
    state_dict fetch_own(int rank) { return detail::dict_of(cz_checkpoint_fetch_own, get(), rank); }

  private:
    static cz_checkpoint_options with(cz_zero *zero)
    {
        cz_checkpoint_options options = fresh<cz_checkpoint_options>();
        options.zero = zero;
        return options;
    }
    static cz_save_options save_of(std::int64_t step, const cz_state_dict *common,
                                   const cz_state_dict *own)
    {
        cz_save_options options = fresh<cz_save_options>();
        options.step = step;
        options.common = common;
        options.own = own;
        return options;
    }
    static load_result owned(const cz_load_result &result)
    {
        load_result loaded;
        loaded.step = result.step;
        loaded.generation = result.generation;
        loaded.world_size = result.world_size;
        loaded.common = state_dict(result.common, true);
        loaded.own = state_dict(result.own, true);
        return loaded;
    }
};

/** A checkpoint as what it is on a disk, read by one process. */
class archive : public detail::handle<cz_archive, cz_archive_destroy>
{
  public:
    explicit archive(const std::string &path, std::int64_t step = CZ_NEWEST)
        : handle(made(cz_archive_open, path.c_str(), step), true)
    {
    }

    cz_archive_info get_info() const
    {
        return detail::filled<cz_archive_info>(cz_archive_get_info, get());
    }
    cz_archive_tensor get_tensor(std::int64_t place) const
    {
        return detail::filled<cz_archive_tensor>(cz_archive_get_tensor, get(), place);
    }
    std::int64_t find(const std::string &name) const
    {
        return cz_archive_find(get(), name.c_str());
    }
    const char *slot(std::int64_t place, std::int64_t number, cz_dtype *dtype = nullptr) const
    {
        return cz_archive_slot(get(), place, number, dtype);
    }
    /** As many elements from `begin` on as `elements` has, which is of the type of the file. */
    template <class Elements>
    void read(std::int64_t place, const char *slot, std::int64_t begin, Elements &&elements)
    {
        const auto to = detail::elements(elements);
        using type = std::remove_pointer_t<decltype(to.data())>;
        cz_archive_tensor tensor = get_tensor(place);
        const char *name;
        for (std::int64_t i = 0; slot != nullptr && (name = this->slot(place, i, &tensor.dtype));
             i++)
            if (std::string(name) == slot) {
                tensor.type = cz_dtype_name(tensor.dtype);
                break;
            }
        if (tensor.dtype != dtype<type>)
            throw error(CZ_ERR_ARGUMENT, std::string("archive read: '") + tensor.name +
                                             "' is of type " + tensor.type + ", expected " +
                                             cz_dtype_name(dtype<type>));
        check(cz_archive_read(get(), place, slot, begin, begin + to.count(), to.data()));
    }
    /** All of one, by name. */
    template <class Type>
    std::vector<Type> read(const std::string &name, const char *slot = nullptr)
    {
        const std::int64_t place = find(name);
        if (place < 0)
            throw error(CZ_ERR_ARGUMENT, "archive read: there is no '" + name + "'");
        std::vector<Type> all(static_cast<std::size_t>(get_tensor(place).count));
        read(place, slot, 0, all);
        return all;
    }
    state_dict read_dict(int rank = CZ_ALL_RANKS)
    {
        return detail::dict_of(cz_archive_read_dict, get(), rank);
    }
    const char *note(std::int64_t number, const char **key) const
    {
        return cz_archive_note(get(), number, key);
    }
    const char *file(std::int64_t number) { return cz_archive_file(get(), number); }
    cz_verify_result verify(const cz_verify_options &options = fresh<cz_verify_options>())
    {
        return detail::filled<cz_verify_result>(cz_archive_verify, get(), &options);
    }
    /** `problem(const char *sentence)` is told of each; the number of them is in the result. */
    template <class Problem, class = std::enable_if_t<std::is_invocable_v<Problem &, const char *>>>
    cz_verify_result verify(Problem &&problem)
    {
        struct context {
            std::remove_reference_t<Problem> &problem;
            detail::thrown thrown;
        } own{problem, {}};
        cz_verify_result result = fresh<cz_verify_result>();
        cz_verify_options options = fresh<cz_verify_options>();
        options.context = &own;
        options.problem = [](const char *sentence, void *data) {
            context *mine = static_cast<context *>(data);
            return mine->thrown.run([&] { return mine->problem(sentence); });
        };
        const cz_status status = cz_archive_verify(get(), &options, &result);
        if (status != CZ_ERR_FORMAT || result.problems == 0)
            own.thrown.check(status);
        else
            own.thrown.check_always(CZ_OK);
        return result;
    }
    std::array<std::uint64_t, 2> fingerprint()
    {
        std::array<std::uint64_t, 2> print = {};
        check(cz_archive_fingerprint(get(), print.data()));
        return print;
    }
    /** `visit(const cz_archive_generation &)` for each generation in a folder. */
    template <class Visit> static void list(const std::string &folder, Visit &&visit)
    {
        struct context {
            std::remove_reference_t<Visit> &visit;
            detail::thrown thrown;
        } own{visit, {}};
        own.thrown.check(cz_archive_list(
            folder.c_str(),
            [](const cz_archive_generation *generation, void *data) {
                context *mine = static_cast<context *>(data);
                return mine->thrown.run([&] { return mine->visit(*generation); });
            },
            &own));
    }
};

/* ---- planning and data ---- */

class shapes : public detail::handle<cz_shapes, cz_shapes_destroy>
{
  public:
    shapes() : shapes(cz_shapes_create) {}
    static shapes from_model(const cz_model *model)
    {
        return shapes([&](cz_shapes **out) { return cz_shapes_from_model(out, model); });
    }
    static shapes read(const std::string &path)
    {
        return shapes([&](cz_shapes **out) { return cz_shapes_read(out, path.c_str()); });
    }
    void add(const std::string &name, cz_dtype type, span<const std::int64_t> shape,
             cz_shape_kind kind = CZ_SHAPE_PARAM)
    {
        check(cz_shapes_add(get(), name.c_str(), type, static_cast<int>(shape.size()), shape.data(),
                            kind));
    }

  private:
    template <class Call> explicit shapes(Call &&call) : handle(made(call), true) {}
};

class plan : public detail::handle<cz_plan, cz_plan_destroy>
{
  public:
    explicit plan(const cz_shapes *shapes,
                  const cz_plan_options &options = fresh<cz_plan_options>())
        : handle(made(cz_plan_create, shapes, &options), true)
    {
    }
    cz_plan_memory rank(int rank) const
    {
        return detail::filled<cz_plan_memory>(cz_plan_rank, get(), rank);
    }
    struct over_ranks {
        cz_plan_memory least, most, mean, sum;
    };
    over_ranks ranks() const
    {
        over_ranks all = {fresh<cz_plan_memory>(), fresh<cz_plan_memory>(), fresh<cz_plan_memory>(),
                          fresh<cz_plan_memory>()};
        check(cz_plan_ranks(get(), &all.least, &all.most, &all.mean, &all.sum));
        return all;
    }
    cz_plan_info get_info() const { return detail::filled<cz_plan_info>(cz_plan_get_info, get()); }
};

/** Deals out the samples of a data set to ranks. */
class sampler : public detail::handle<cz_sampler, cz_sampler_destroy>
{
  public:
    explicit sampler(const cz_sampler_options &options)
        : handle(made(cz_sampler_create, &options), true)
    {
        samples_.resize(static_cast<std::size_t>(get_info().local_batch));
    }
    /** This rank's samples of the next batch, or part; valid until the next call. */
    span<const std::int64_t> next()
    {
        std::int64_t count = 0;
        check(cz_sampler_next(get(), samples_.data(), &count));
        return {samples_.data(), static_cast<std::size_t>(count)};
    }
    cz_sampler_info get_info() const
    {
        return detail::filled<cz_sampler_info>(cz_sampler_get_info, get());
    }
    void set_position(std::int64_t position) { check(cz_sampler_set_position(get(), position)); }

  private:
    std::vector<std::int64_t> samples_;
};

/* ---- the log ---- */

/** Lines go to `sink(cz_log_level, const char *)`, on several threads at once, until another one is
 *  set; without one to stderr. Must not throw. Not while other threads log. */
inline void log_set_sink(std::function<void(cz_log_level, const char *)> sink = {})
{
    /* Never destroyed: objects that end after main() may log. */
    static auto &own = *new std::function<void(cz_log_level, const char *)>;
    cz_log_set_sink(nullptr, nullptr);
    own = std::move(sink);
    if (own)
        cz_log_set_sink([](cz_log_level level, const char *line, void *) { own(level, line); },
                        nullptr);
}

} // namespace czero

#endif
