/* SPDX-License-Identifier: MIT */
/** @file torch.hpp  libtorch on several ranks, in C++17: modules whose gradients are averaged while
 *  they are computed, and an optimizer whose state is sharded, in the place of libtorch's own.
 *
 *      czero::launch([](czero::group &world) {
 *          Net net;                                        // a torch::nn::Module, or its holder
 *          czero::torch::DistributedDataParallel ddp(world, *net);
 *          czero::torch::ZeroRedundancyOptimizer optimizer(ddp, net->parameters(),
 *                                                          torch::optim::AdamWOptions(1e-3));
 *          for (…) {
 *              optimizer.zero_grad();
 *              loss_of(net->forward(images), labels).backward();
 *              optimizer.step();
 *          }
 *      });
 *
 *  Either works without the other: a DistributedDataParallel with any optimizer of libtorch, and a
 *  ZeroRedundancyOptimizer on a group, whose steps average the gradients that each rank has.
 *
 *  Tensors are contiguous, on the CPU, and stay where they are: Module::to() comes before. Failures
 *  are thrown as everywhere in czero.hpp, by the call of libtorch in which they are found:
 *  backward(), step(). A program that says `using namespace czero` has two namespaces torch. For
 *  libtorch from 1.13 on; czero needs nothing of it to be built. See docs/libtorch.md. */
#ifndef CZERO_TORCH_HPP
#define CZERO_TORCH_HPP

#include <algorithm>
#include <cstring>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/optim.h>
#include <torch/serialize/archive.h>

#include "czero/czero.hpp"

namespace czero::torch
{

/** As Module::named_parameters() and named_buffers() return them. */
using named_tensors = ::torch::OrderedDict<std::string, ::torch::Tensor>;

namespace detail
{

/** The memory of a tensor as czero has it. Buffers are only sent, so that bytes will do. */
inline cz_tensor view(const std::string &name, const ::torch::Tensor &tensor, bool buffer = false)
{
    const auto refuse = [&](cz_status status, const std::string &why) {
        throw error(status, "libtorch: '" + name + "' " + why);
    };
    cz_tensor out = {};
    if (!tensor.defined())
        refuse(CZ_ERR_ARGUMENT, "is an undefined tensor");
    if (tensor.layout() != ::torch::kStrided)
        refuse(CZ_ERR_UNSUPPORTED, "is sparse, expected a dense tensor");
    if (!tensor.device().is_cpu())
        refuse(CZ_ERR_UNSUPPORTED, "is on " + tensor.device().str() + ", expected the CPU");
    if (!tensor.is_contiguous())
        refuse(CZ_ERR_UNSUPPORTED, "is not contiguous");
    if (tensor.dim() > CZ_MAX_DIMENSIONS)
        refuse(CZ_ERR_UNSUPPORTED, "has " + std::to_string(tensor.dim()) + " dimensions, at most " +
                                       std::to_string(CZ_MAX_DIMENSIONS) + " are allowed");
    switch (tensor.scalar_type()) {
    case ::torch::kFloat:
        out.dtype = CZ_F32;
        break;
    case ::torch::kDouble:
        out.dtype = CZ_F64;
        break;
    case ::torch::kHalf:
        out.dtype = CZ_F16;
        break;
    case ::torch::kBFloat16:
        out.dtype = CZ_BF16;
        break;
    case ::torch::kInt:
        out.dtype = CZ_I32;
        break;
    case ::torch::kLong:
        out.dtype = CZ_I64;
        break;
    default:
        if (!buffer || tensor.element_size() != 1)
            refuse(CZ_ERR_UNSUPPORTED,
                   std::string("is of type ") + ::c10::toString(tensor.scalar_type()));
        out.dtype = CZ_U8;
    }
    out.data = tensor.data_ptr();
    out.dimensions = static_cast<int>(tensor.dim());
    for (int i = 0; i < out.dimensions; i++)
        out.shape[i] = tensor.size(i);
    return out;
}

/** A model, and the tensors of libtorch that it is of. */
class tensors
{
  public:
    tensors() = default;
    tensors(const named_tensors &given_parameters, const named_tensors &given_buffers)
    {
        for (const auto &item : given_parameters)
            add(item.key(), item.value());
        for (const auto &item : given_buffers) {
            if (!item.value().defined() || places_.count(item.value().unsafeGetTensorImpl()) > 0)
                continue;
            const cz_tensor buffer = view(item.key(), item.value(), true);
            check(cz_model_add_buffer(model, item.key().c_str(), buffer.data, buffer.dtype,
                                      buffer.dimensions, buffer.shape));
            buffers.push_back(item.value());
            places_.emplace(item.value().unsafeGetTensorImpl(), -1);
        }
    }

    /** One more parameter, unless it is there, under another name perhaps. */
    void add(const std::string &name, const ::torch::Tensor &parameter)
    {
        const cz_tensor value = view(name, parameter);
        if (!parameter.is_leaf())
            throw error(CZ_ERR_ARGUMENT,
                        "libtorch: '" + name + "' is computed from other tensors, expected a leaf");
        if (places_.count(parameter.unsafeGetTensorImpl()) > 0)
            return;
        const std::int64_t place = static_cast<std::int64_t>(parameters.size());
        model.add_tensor(name, value);
        model.set_requires_grad(place, parameter.requires_grad());
        parameters.push_back(parameter);
        places_.emplace(parameter.unsafeGetTensorImpl(), place);
    }

    /** Its number in the model; -1: it is not in it. */
    std::int64_t find(const ::torch::Tensor &parameter) const
    {
        const auto place = places_.find(parameter.unsafeGetTensorImpl());
        return place == places_.end() ? -1 : place->second;
    }

    /** All are where they were; what libtorch has frozen since is frozen here. */
    void look()
    {
        for (std::size_t i = 0; i < parameters.size(); i++) {
            const cz_model_param known = model.get_param(static_cast<std::int64_t>(i));
            expect_in_place(known.name, parameters[i], *known.value);
            if (parameters[i].requires_grad() != (known.requires_grad != 0))
                model.set_requires_grad(static_cast<std::int64_t>(i),
                                        parameters[i].requires_grad());
        }
        for (std::size_t i = 0; i < buffers.size(); i++) {
            const cz_model_param known =
                model.get_param(static_cast<std::int64_t>(parameters.size() + i));
            expect_in_place(known.name, buffers[i], *known.value);
        }
    }

    czero::model model;
    std::vector<::torch::Tensor> parameters; /**< in the model's order */
    std::vector<::torch::Tensor> buffers;

  private:
    static void expect_in_place(const char *name, const ::torch::Tensor &tensor,
                                const cz_tensor &known)
    {
        if (tensor.data_ptr() != known.data || tensor.numel() != cz_tensor_count(&known) ||
            static_cast<std::size_t>(tensor.element_size()) != cz_dtype_size(known.dtype))
            throw error(CZ_ERR_STATE, std::string("libtorch: the values of '") + name +
                                          "' have moved since; expected them where they were "
                                          "(Module::to() comes before)");
    }

    std::unordered_map<const void *, std::int64_t> places_;
};

} // namespace detail

/** One rank's part of a data-parallel module, or of any named parameters: from its making on every
 *  backward pass through them ends with gradients that are the mean over all ranks, of which each
 *  bucket is reduced while the pass computes the next (ddp.h has the contracts). Forward passes are
 *  libtorch's own and know nothing of it.
 *
 *  The first gradient of a backward pass begins a pass of czero, which is where ranks meet and get
 *  rank 0's buffers, and backward() returns when it has ended: so every rank calls it equally
 *  often, for graphs with the same parameters (option find_unused: with any, but at least one; for
 *  ranks with fewer batches see joinable()). A backward pass that then fails on one rank, with an
 *  exception of whatever kind, fails on all of them: CZ_ERR_STATE on the others. Gradients are then
 *  undefined, and the next pass may begin. One that fails before its first gradient, as a forward
 *  pass, is for the others one that has not come yet: they wait for this rank's next, or its end.
 *
 *  Gradients have memory that this object gives them: param.grad() keeps its address, also where
 *  zero_grad() has made it undefined meanwhile. Graphs of gradients (create_graph) are not kept.
 *  torch::autograd::grad() is libtorch's alone. */
class DistributedDataParallel
{
  public:
    /** Collective; values and buffers become those of rank 0, see cz_ddp_create(). */
    DistributedDataParallel(group &over, const ::torch::nn::Module &module,
                            const cz_ddp_options &options = fresh<cz_ddp_options>())
        : DistributedDataParallel(over, module.named_parameters(), module.named_buffers(), options)
    {
    }
    DistributedDataParallel(group &over, const named_tensors &parameters,
                            const named_tensors &buffers = named_tensors(),
                            const cz_ddp_options &options = fresh<cz_ddp_options>())
        : own_(std::make_unique<state>(over, parameters, buffers, options))
    {
    }

    /** While it lives, backward passes add up gradients on this rank and reduce nothing; the next
     *  one after it reduces what has been added up. Alike on all ranks. */
    class no_sync_scope
    {
      public:
        explicit no_sync_scope(bool &sync) noexcept : sync_(sync), before_(sync) { sync = false; }
        no_sync_scope(const no_sync_scope &) = delete;
        no_sync_scope &operator=(const no_sync_scope &) = delete;
        ~no_sync_scope() { sync_ = before_; }

      private:
        bool &sync_;
        bool before_;
    };
    [[nodiscard]] no_sync_scope no_sync() noexcept { return no_sync_scope(own_->sync); }

    /** What this rank's gradients count for from the next backward pass on, such as the number of
     *  examples in its batch; see cz_ddp_set_weight(). */
    void set_weight(double weight) { own_->ddp->set_weight(weight); }
    /** For czero::join::run(): ranks that have no more batches make the others' passes. Between
     *  passes. */
    cz_joinable joinable()
    {
        own_->prepare();
        return own_->ddp->joinable();
    }
    /** For hooks that reduce buckets otherwise, and info. Its passes are this object's matter. */
    czero::ddp &handle() noexcept { return *own_->ddp; }
    /** Of the parameters and buffers, by their names. */
    czero::model &model() noexcept { return own_->all.model; }

  private:
    friend class ZeroRedundancyOptimizer;

    /* Hooks in libtorch's graphs refer to it. */
    struct state {
        state(group &over_ranks, const named_tensors &parameters, const named_tensors &buffers,
              const cz_ddp_options &options)
            : over(over_ranks), all(parameters, buffers), gradients(all.parameters.size()),
              marked(all.parameters.size()), owed(all.parameters.size())
        {
            prepare();
            ddp.emplace(over_ranks, all.model, options);
            for (std::size_t i = 0; i < all.parameters.size(); i++)
                add_hook(i);
        }
        state(const state &) = delete;
        state &operator=(const state &) = delete;
        ~state()
        {
            for (const auto &hook : hooks)
                hook.first->del_post_hook(hook.second);
        }

        /* libtorch calls it when it has added a gradient up; that is done by an object which lives
         * as long as somebody refers to it. A frozen parameter may thaw, so it has one, too. */
        void add_hook(std::size_t i)
        {
            ::torch::Tensor parameter = all.parameters[i];
            if (!parameter.is_floating_point())
                return;
            const bool trained = parameter.requires_grad();
            parameter.set_requires_grad(true);
            hooks.emplace_back(::torch::autograd::impl::grad_accumulator(parameter), 0);
            parameter.set_requires_grad(trained);
            using ::torch::autograd::variable_list;
            hooks.back().second = hooks.back().first->add_post_hook(
                std::make_unique<::torch::autograd::utils::LambdaPostHook>(
                    [this, i](const variable_list &outputs, const variable_list &) {
                        complete(i);
                        return outputs;
                    }));
        }

        /* What is trained has memory for its gradient. */
        void prepare()
        {
            const ::torch::NoGradGuard guard;
            all.look();
            for (std::size_t i = 0; i < gradients.size(); i++) {
                if (!all.parameters[i].requires_grad() || gradients[i].defined())
                    continue;
                ::torch::Tensor own = ::torch::zeros_like(all.parameters[i]);
                all.model.set_gradient(static_cast<std::int64_t>(i), own.data_ptr());
                gradients[i] = std::move(own);
            }
        }

        /* libtorch has a gradient elsewhere if it had none before. */
        void bring_home(std::size_t i)
        {
            const ::torch::NoGradGuard guard;
            ::torch::Tensor &gradient = all.parameters[i].mutable_grad();
            if (gradient.layout() != ::torch::kStrided)
                throw error(CZ_ERR_UNSUPPORTED, "libtorch: the gradient of '" + name(i) +
                                                    "' is sparse, expected a dense one");
            if (gradient.is_contiguous() && gradient.data_ptr() == gradients[i].data_ptr())
                return;
            gradients[i].copy_(gradient);
            gradient = gradients[i];
        }

        /* Ends the pass, too, where libtorch drops it because something threw. */
        struct pass {
            explicit pass(state *of) noexcept : of_(of) {}
            pass(const pass &) = delete;
            pass &operator=(const pass &) = delete;
            ~pass()
            {
                if (!ended_)
                    of_->abandon();
            }
            void finish()
            {
                ended_ = true;
                of_->finish();
            }

          private:
            state *of_;
            bool ended_ = false;
        };

        void complete(std::size_t i)
        {
            if (!open)
                begin();
            bring_home(i);
            marked[i] = true;
            owed[i] = owed[i] || !sync;
            ddp->mark_ready(static_cast<std::int64_t>(i));
        }

        void begin()
        {
            if (before_pass && sync)
                before_pass();
            prepare();
            for (std::size_t i = 0; i < gradients.size(); i++) {
                marked[i] = false;
                if (!gradients[i].defined())
                    continue;
                if (all.parameters[i].grad().defined()) {
                    bring_home(i);
                } else if (owed[i]) {
                    gradients[i].zero_();
                    all.parameters[i].mutable_grad() = gradients[i];
                } else {
                    write_mark(i);
                }
            }
            ddp->begin(sync);
            open = true;
            const auto own = std::make_shared<pass>(this);
            ::torch::autograd::Engine::get_default_engine().queue_callback(
                [own] { own->finish(); });
        }

        void finish()
        {
            open = false;
            ddp->finish();
            if (!sync)
                return;
            owed.assign(owed.size(), false);
            /* Those that only other ranks have used have a gradient now. */
            for (std::size_t i = 0; i < gradients.size(); i++)
                if (gradients[i].defined() && !marked[i] && !all.parameters[i].grad().defined() &&
                    !has_mark(i))
                    all.parameters[i].mutable_grad() = gradients[i];
        }

        void abandon() noexcept
        {
            open = false;
            (void)cz_ddp_abandon(*ddp);
        }

        /* In memory of a gradient that libtorch has not: a NaN that no computation gives. It is
         * still there after a pass in which no rank has used the parameter. */
        void write_mark(std::size_t i)
        {
            if (gradients[i].numel() > 0)
                std::memset(gradients[i].data_ptr(), 0xff,
                            static_cast<std::size_t>(gradients[i].element_size()));
        }
        bool has_mark(std::size_t i) const
        {
            const auto *bytes = static_cast<const unsigned char *>(gradients[i].data_ptr());
            const std::size_t count = gradients[i].numel() > 0
                                          ? static_cast<std::size_t>(gradients[i].element_size())
                                          : 0;
            return std::all_of(bytes, bytes + count, [](unsigned char b) { return b == 0xff; });
        }

        std::string name(std::size_t i) const
        {
            return all.model.get_param(static_cast<std::int64_t>(i)).name;
        }

        cz_group *over;
        detail::tensors all;
        std::vector<::torch::Tensor> gradients; /* undefined: frozen from the beginning on */
        std::vector<bool> marked;               /* in this pass */
        std::vector<bool> owed; /* in one that did not synchronise, since one that did */
        std::optional<czero::ddp> ddp;
        std::function<void()> before_pass; /* of its optimizer, for a pass that synchronises */
        std::vector<std::pair<decltype(::torch::autograd::impl::grad_accumulator(
                                  std::declval<::torch::Tensor>())),
                              std::uintptr_t>>
            hooks;
        bool sync = true;
        bool open = false;
    };

    std::unique_ptr<state> own_;
};

/* ---- the optimizer ---- */

namespace detail
{

/** What libtorch's options and state of one of its optimizers are here. */
template <class Options> struct rule_of;

template <class Options, class State> struct adam_like {
    using state = State;
    template <class Put> static void hypers(const Options &options, Put &&put)
    {
        put("lr", options.lr());
        put("beta1", std::get<0>(options.betas()));
        put("beta2", std::get<1>(options.betas()));
        put("eps", options.eps());
        put("weight_decay", options.weight_decay());
        put("amsgrad", options.amsgrad());
    }
    template <class Visit> static void slots(State &of, Visit &&visit)
    {
        visit("step", of.step());
        visit("exp_avg", of.exp_avg());
        visit("exp_avg_sq", of.exp_avg_sq());
        visit("max_exp_avg_sq", of.max_exp_avg_sq());
    }
};
template <>
struct rule_of<::torch::optim::AdamOptions>
    : adam_like<::torch::optim::AdamOptions, ::torch::optim::AdamParamState> {
    static const cz_rule *rule() { return cz_rule_adam(); }
};
template <>
struct rule_of<::torch::optim::AdamWOptions>
    : adam_like<::torch::optim::AdamWOptions, ::torch::optim::AdamWParamState> {
    static const cz_rule *rule() { return cz_rule_adamw(); }
};
template <> struct rule_of<::torch::optim::SGDOptions> {
    using state = ::torch::optim::SGDParamState;
    static const cz_rule *rule() { return cz_rule_sgd(); }
    template <class Put> static void hypers(const ::torch::optim::SGDOptions &options, Put &&put)
    {
        put("lr", options.lr());
        put("momentum", options.momentum());
        put("dampening", options.dampening());
        put("weight_decay", options.weight_decay());
        put("nesterov", options.nesterov());
    }
    template <class Visit> static void slots(state &of, Visit &&visit)
    {
        visit("momentum_buffer", of.momentum_buffer());
    }
};
template <> struct rule_of<::torch::optim::RMSpropOptions> {
    using state = ::torch::optim::RMSpropParamState;
    static const cz_rule *rule() { return cz_rule_rmsprop(); }
    template <class Put>
    static void hypers(const ::torch::optim::RMSpropOptions &options, Put &&put)
    {
        put("lr", options.lr());
        put("alpha", options.alpha());
        put("eps", options.eps());
        put("weight_decay", options.weight_decay());
        put("momentum", options.momentum());
        put("centered", options.centered());
    }
    template <class Visit> static void slots(state &of, Visit &&visit)
    {
        visit("step", of.step());
        visit("square_avg", of.square_avg());
        visit("momentum_buffer", of.momentum_buffer());
        visit("grad_avg", of.grad_avg());
    }
};
template <> struct rule_of<::torch::optim::AdagradOptions> {
    using state = ::torch::optim::AdagradParamState;
    static const cz_rule *rule() { return cz_rule_adagrad(); }
    template <class Put>
    static void hypers(const ::torch::optim::AdagradOptions &options, Put &&put)
    {
        put("lr", options.lr());
        put("lr_decay", options.lr_decay());
        put("weight_decay", options.weight_decay());
        put("initial_accumulator_value", options.initial_accumulator_value());
        put("eps", options.eps());
    }
    template <class Visit> static void slots(state &of, Visit &&visit)
    {
        visit("step", of.step());
        visit("sum", of.sum());
    }
};

/** The same behind functions, for an optimizer whose type does not name its options. */
struct rule_functions {
    const cz_rule *rule;
    std::vector<cz_hyper> (*hypers)(const ::torch::optim::OptimizerOptions &);
    void (*save)(::torch::serialize::OutputArchive &, const ::torch::optim::Optimizer &);
    void (*load)(::torch::serialize::InputArchive &, ::torch::optim::Optimizer &);
    std::unique_ptr<::torch::optim::OptimizerParamState> (*to_libtorch)(const state_dict &);
    void (*from_libtorch)(::torch::optim::OptimizerParamState &, state_dict);

    template <class Options> static rule_functions of()
    {
        using rules = rule_of<Options>;
        using state = typename rules::state;
        rule_functions own = {};
        own.rule = rules::rule();
        own.hypers = [](const ::torch::optim::OptimizerOptions &given) {
            const auto *options = dynamic_cast<const Options *>(&given);
            if (!options)
                throw error(CZ_ERR_ARGUMENT, std::string("libtorch: a parameter group has options "
                                                         "of another optimizer, expected those "
                                                         "of ") +
                                                 rules::rule()->name);
            std::vector<cz_hyper> list;
            rules::hypers(*options, [&](const char *name, auto value) {
                list.push_back({name, static_cast<double>(value)});
            });
            return list;
        };
        own.save = ::torch::optim::serialize<state, Options>;
        own.load = ::torch::optim::serialize<state, Options>;
        own.to_libtorch = [](const state_dict &entry) {
            auto made = std::make_unique<state>();
            rules::slots(*made, [&](const char *name, auto &slot) {
                if (entry.kind(name) == CZ_STATE_NONE)
                    return;
                if constexpr (std::is_same_v<std::decay_t<decltype(slot)>, ::torch::Tensor>)
                    slot = copy_of(entry.get_tensor(name));
                else
                    slot = entry.get_integer(name);
            });
            return std::unique_ptr<::torch::optim::OptimizerParamState>(std::move(made));
        };
        own.from_libtorch = [](::torch::optim::OptimizerParamState &from, state_dict entry) {
            rules::slots(static_cast<state &>(from), [&](const char *name, auto &slot) {
                if constexpr (std::is_same_v<std::decay_t<decltype(slot)>, ::torch::Tensor>) {
                    if (slot.defined()) {
                        const ::torch::Tensor dense = slot.detach().contiguous();
                        entry.set_tensor(name, view(name, dense));
                    }
                } else {
                    entry.set_integer(name, slot);
                }
            });
        };
        return own;
    }

  private:
    static ::torch::Tensor copy_of(const cz_tensor &from)
    {
        return ::torch::from_blob(
                   from.data,
                   ::c10::IntArrayRef(from.shape, static_cast<std::size_t>(from.dimensions)),
                   from.dtype == CZ_F64 ? ::torch::kDouble : ::torch::kFloat)
            .clone();
    }
};

} // namespace detail

/** An optimizer of libtorch whose state is sharded over ranks (zero.h has the contracts). Its type
 *  of options says what it is: SGDOptions, AdamOptions, AdamWOptions, RMSpropOptions or
 *  AdagradOptions.
 *
 *  Where it is used as an Optimizer it is one: options of groups, which schedulers change, count
 *  from the next step on, alike on all ranks; so do groups that add_param_group() has added, from
 *  the next step or pass on; step() runs its closure once on each rank. Otherwise than there,
 *  parameters that are frozen are left alone, and a step for which nobody has computed gradients is
 *  an error (CZ_ERR_STATE). What is collective: making it, step(), consolidate_state_dict(),
 *  loading. */
class ZeroRedundancyOptimizer : public ::torch::optim::Optimizer
{
  public:
    using groups = std::vector<::torch::optim::OptimizerParamGroup>;

    /** Steps average the gradients that each rank has. Parameters become those of rank 0, and are
     *  called "0", "1", … Groups that are added later may have any tensors; where these are new,
     *  state passes through every rank once as a whole. */
    template <class Options>
    ZeroRedundancyOptimizer(group &over, groups parameters, const Options &defaults,
                            const cz_zero_options &options = fresh<cz_zero_options>())
        : ZeroRedundancyOptimizer(&over, nullptr, std::move(parameters), defaults, options)
    {
    }
    template <class Options>
    ZeroRedundancyOptimizer(group &over, std::vector<::torch::Tensor> parameters,
                            const Options &defaults,
                            const cz_zero_options &options = fresh<cz_zero_options>())
        : ZeroRedundancyOptimizer(&over, nullptr, one(std::move(parameters)), defaults, options)
    {
    }
    /** Steps take the gradients that backward passes of `ddp`, which outlives this, have averaged;
     *  each rank is then sent only those of its shard, unless that has option all_reduce. Groups
     *  are of its parameters, and all that are trained are in one when a pass begins. */
    template <class Options>
    ZeroRedundancyOptimizer(DistributedDataParallel &ddp, groups parameters,
                            const Options &defaults,
                            const cz_zero_options &options = fresh<cz_zero_options>())
        : ZeroRedundancyOptimizer(nullptr, &ddp, std::move(parameters), defaults, options)
    {
    }
    template <class Options>
    ZeroRedundancyOptimizer(DistributedDataParallel &ddp, std::vector<::torch::Tensor> parameters,
                            const Options &defaults,
                            const cz_zero_options &options = fresh<cz_zero_options>())
        : ZeroRedundancyOptimizer(nullptr, &ddp, one(std::move(parameters)), defaults, options)
    {
    }
    ZeroRedundancyOptimizer(const ZeroRedundancyOptimizer &) = delete;
    ZeroRedundancyOptimizer &operator=(const ZeroRedundancyOptimizer &) = delete;
    ~ZeroRedundancyOptimizer() override
    {
        if (ddp_)
            ddp_->before_pass = nullptr;
    }

    /** What a closure throws comes out here, and fails the step on all ranks before anything has
     *  changed. Returns the loss of the closure. */
    ::torch::Tensor step(LossClosure closure = nullptr) override
    {
        const ::torch::NoGradGuard guard;
        take_new_groups();
        ::torch::Tensor loss;
        cz_step_options options = fresh<cz_step_options>();
        options.max_norm = std::exchange(max_norm_, 0);
        if (!ddp_) {
            options.gradients = addresses_.data();
            options.gradient_count = static_cast<std::int64_t>(addresses_.size());
        }
        result_ = zero_->step(
            [&] {
                if (closure) {
                    const ::c10::AutoGradMode with_graphs(true);
                    loss = closure();
                }
                look();
            },
            options);
        forget_consolidated();
        if (result_.skipped == 0)
            for (const ::torch::Tensor &parameter : tensors_->parameters)
                if (parameter.requires_grad())
                    ::torch::autograd::impl::bump_version(parameter);
        return loss;
    }

    /** The next step multiplies gradients by max_norm / (norm + 1e-6) if the norm of all of them,
     *  of their mean over ranks, is above max_norm; norm() has it after the step. With infinity it
     *  is only measured. A step that fails was the next one, too. Alike on all ranks. libtorch's
     *  function of that name sees the gradients of one rank. */
    void clip_grad_norm_(double max_norm) noexcept { max_norm_ = max_norm; }
    /** Of the last step for which it was asked, NaN otherwise; the same on all ranks. */
    double norm() const noexcept { return result_.norm; }

    /** Bring the state of all ranks together, to rank `to` or to all of them (CZ_ALL_RANKS). There
     *  state() then has it in libtorch's form, and torch::save() writes what libtorch's own
     *  optimizer would, until the next step. Collective. */
    void consolidate_state_dict(int to = 0)
    {
        take_new_groups();
        forget_consolidated();
        zero_->consolidate_state_dict(to);
        if (to != CZ_ALL_RANKS && to != cz_group_rank(over_))
            return;
        const state_dict dict = zero_->state_dict();
        const state_dict states = dict.get_dict("state");
        for (std::size_t i = 0; i < tensors_->parameters.size(); i++)
            if (const std::string key = name(i); states.kind(key) == CZ_STATE_DICT)
                state_[libtorch_key<state_key>(tensors_->parameters[i])] =
                    functions_.to_libtorch(states.get_dict(key));
        consolidated_ = true;
    }

    /** torch::save(): of a rank to which the state was consolidated. Local. */
    void save(::torch::serialize::OutputArchive &archive) const override
    {
        if (!consolidated_)
            throw error(CZ_ERR_STATE,
                        "libtorch: the optimizer cannot be saved: its state is not on "
                        "this rank as it is now; consolidate_state_dict() comes "
                        "before, on all ranks");
        functions_.save(archive, *this);
    }
    /** torch::load(), of what this or libtorch's optimizer of the kind has saved, on any number of
     *  ranks: parameters are found by their place in the groups. Collective: all ranks read equal
     *  archives. As with libtorch, options of groups are the program's. */
    void load(::torch::serialize::InputArchive &archive) override
    {
        take_new_groups();
        forget_consolidated();
        state_dict dict;
        try {
            functions_.load(archive, *this);
            dict = loaded();
        } catch (...) {
            forget_consolidated();
            (void)cz_zero_load_state_dict(*zero_, nullptr); /* which the others learn */
            throw;
        }
        forget_consolidated();
        zero_->load_state_dict(dict);
    }

    /** For czero::join::run(), beside that of the DistributedDataParallel, if there is one. */
    cz_joinable joinable()
    {
        take_new_groups();
        look();
        return zero_->joinable();
    }
    /** For checkpoints, fingerprints, info, new shards. Another one after add_param_group() of
     *  tensors that were unknown. Options of groups are set here by each step: set them there. */
    czero::zero &handle() noexcept { return *zero_; }

  private:
    using state_key =
        std::decay_t<decltype(std::declval<::torch::optim::Optimizer &>().state())>::key_type;

    template <class Options>
    ZeroRedundancyOptimizer(group *over, DistributedDataParallel *ddp, groups parameters,
                            const Options &defaults, const cz_zero_options &options)
        : Optimizer(std::move(parameters), std::make_unique<Options>(defaults)),
          functions_(detail::rule_functions::of<Options>()), ddp_(ddp ? ddp->own_.get() : nullptr),
          options_(options)
    {
        if (options.groups || options.ddp || options.parts ||
            options.parameters_as_bucket_view != 0 || options.overlap != CZ_OVERLAP_NONE)
            throw error(CZ_ERR_UNSUPPORTED,
                        "libtorch: of cz_zero_options groups, ddp, parts, "
                        "parameters_as_bucket_view and overlap are not the program's here");
        if (ddp_) {
            tensors_ = &ddp_->all;
            options_.ddp = *ddp_->ddp;
            over_ = ddp_->over;
        } else {
            own_tensors_ = std::make_unique<detail::tensors>();
            tensors_ = own_tensors_.get();
            over_ = *over;
        }
        make();
        result_.norm = std::numeric_limits<double>::quiet_NaN();
        if (ddp_) /* all that is trained is in a group then */
            ddp_->before_pass = [this] { take_new_groups(); };
    }
    static groups one(std::vector<::torch::Tensor> parameters)
    {
        groups list;
        list.emplace_back(std::move(parameters));
        return list;
    }
    template <class Key> static Key libtorch_key(const ::torch::Tensor &parameter)
    {
        if constexpr (std::is_same_v<Key, std::string>) {
            std::ostringstream text;
            text << parameter.unsafeGetTensorImpl();
            return text.str();
        } else {
            return parameter.unsafeGetTensorImpl();
        }
    }

    czero::param_group described(const detail::tensors &over, std::size_t number) const
    {
        const ::torch::optim::OptimizerParamGroup &given = param_groups_[number];
        std::vector<std::int64_t> places;
        for (const ::torch::Tensor &parameter : given.params()) {
            places.push_back(over.find(parameter));
            if (places.back() < 0)
                throw error(CZ_ERR_ARGUMENT,
                            "libtorch: parameter group " + std::to_string(number) +
                                " has a tensor (number " + std::to_string(places.size() - 1) +
                                ") that is no parameter of the data-parallel module");
        }
        return czero::param_group(std::move(places), hypers(functions_.hypers(given.options())));
    }

    /* Over the first groups. */
    std::unique_ptr<czero::zero> create(detail::tensors &over, std::size_t group_count) const
    {
        std::vector<czero::param_group> list;
        for (std::size_t i = 0; i < group_count; i++)
            list.push_back(described(over, i));
        const czero::param_groups described_groups(std::move(list));
        cz_zero_options options = options_;
        options.groups = described_groups.data();
        options.group_count = described_groups.count();
        group here(over_, false);
        return std::make_unique<czero::zero>(here, over.model, functions_.rule,
                                             hypers(functions_.hypers(*defaults_)), options);
    }

    static void add_unknown(detail::tensors &to, const std::vector<::torch::Tensor> &parameters)
    {
        for (const ::torch::Tensor &parameter : parameters)
            if (to.find(parameter) < 0)
                to.add(std::to_string(to.parameters.size()), parameter);
    }

    void make()
    {
        if (!ddp_)
            for (const auto &one : param_groups_)
                add_unknown(*tensors_, one.params());
        zero_ = create(*tensors_, param_groups_.size());
        for (const auto &one : param_groups_)
            taken_.push_back(one.params().size());
        if (!ddp_)
            zero_->broadcast_parameters();
        addresses_.resize(tensors_->parameters.size());
    }

    /* The model's list is closed: tensors that it has not are had by another one. */
    void widen(const std::vector<::torch::Tensor> &parameters)
    {
        if (options_.partition == CZ_PARTITION_GIVEN)
            throw error(CZ_ERR_UNSUPPORTED,
                        "libtorch: a parameter group has new tensors, and owners were given");
        auto wider = std::make_unique<detail::tensors>();
        add_unknown(*wider, tensors_->parameters);
        add_unknown(*wider, parameters);
        std::unique_ptr<czero::zero> anew = create(*wider, taken_.size());
        zero_->consolidate_state_dict(CZ_ALL_RANKS);
        anew->load_state_dict(zero_->state_dict());
        anew->broadcast_parameters();
        zero_ = std::move(anew);
        own_tensors_ = std::move(wider);
        tensors_ = own_tensors_.get();
        addresses_.resize(tensors_->parameters.size());
    }

    void take_new_groups()
    {
        while (taken_.size() < param_groups_.size()) {
            const std::vector<::torch::Tensor> &parameters = param_groups_[taken_.size()].params();
            const auto unknown = [&](const ::torch::Tensor &one) {
                return tensors_->find(one) < 0;
            };
            if (!ddp_ && std::any_of(parameters.begin(), parameters.end(), unknown))
                widen(parameters);
            zero_->add_param_group(described(*tensors_, taken_.size()));
            taken_.push_back(parameters.size());
        }
    }

    /* How things are in libtorch, before a step. */
    void look()
    {
        tensors_->look();
        for (std::size_t i = 0; i < taken_.size(); i++) {
            if (i >= param_groups_.size() || param_groups_[i].params().size() != taken_[i])
                throw error(CZ_ERR_STATE, "libtorch: parameter group " + std::to_string(i) +
                                              " has lost or won parameters, expected " +
                                              std::to_string(taken_[i]) +
                                              "; new ones come by add_param_group()");
            set_hypers(static_cast<std::int64_t>(i), functions_.hypers(param_groups_[i].options()));
        }
        if (!ddp_)
            for (std::size_t i = 0; i < addresses_.size(); i++)
                addresses_[i] = gradient(i);
    }

    /* In two rounds: values that go together only with one which comes after them. */
    void set_hypers(std::int64_t number, const std::vector<cz_hyper> &list)
    {
        cz_optim *local = cz_zero_local_optim(*zero_);
        for (const bool last : {false, true})
            for (const cz_hyper &hyper : list) {
                double now = 0;
                check(cz_optim_get_hyper(local, number, hyper.name, &now));
                if (now == hyper.value)
                    continue;
                const cz_status status = cz_optim_set_hyper(local, number, hyper.name, hyper.value);
                if (last)
                    check(status);
            }
    }

    void *gradient(std::size_t i)
    {
        ::torch::Tensor &gradient = tensors_->parameters[i].mutable_grad();
        if (!gradient.defined())
            return nullptr;
        if (gradient.layout() == ::torch::kStrided && !gradient.is_contiguous())
            gradient = gradient.detach().contiguous();
        return detail::view("gradient of " + name(i), gradient).data;
    }

    /* What libtorch has read into its map of states. */
    state_dict loaded()
    {
        state_dict dict;
        dict.set_text("rule", functions_.rule->name);
        state_dict states = dict.add_dict("state");
        state_dict lists = dict.add_dict("param_groups");
        for (std::size_t i = 0; i < param_groups_.size(); i++) {
            std::vector<std::string> names;
            for (const ::torch::Tensor &parameter : param_groups_[i].params()) {
                const std::size_t place = static_cast<std::size_t>(tensors_->find(parameter));
                const auto found = state_.find(libtorch_key<state_key>(parameter));
                names.push_back(name(place));
                if (found != state_.end())
                    functions_.from_libtorch(*found->second, states.add_dict(names.back()));
            }
            lists.add_dict(std::to_string(i)).set_texts("params", names);
        }
        return dict;
    }

    void forget_consolidated()
    {
        state_.clear();
        consolidated_ = false;
    }
    std::string name(std::size_t i) const
    {
        return tensors_->model.get_param(static_cast<std::int64_t>(i)).name;
    }

    detail::rule_functions functions_;
    DistributedDataParallel::state *ddp_; /* stays where it is when its object is moved */
    cz_zero_options options_;
    cz_group *over_ = nullptr;
    std::unique_ptr<detail::tensors> own_tensors_;
    detail::tensors *tensors_ = nullptr; /* own ones, or those of the ddp */
    std::unique_ptr<czero::zero> zero_;
    std::vector<std::size_t> taken_; /* parameters in each group that has been handed on */
    std::vector<void *> addresses_;  /* of gradients */
    double max_norm_ = 0;
    cz_step_result result_ = fresh<cz_step_result>();
    bool consolidated_ = false;
};

} // namespace czero::torch

#endif
