/* SPDX-License-Identifier: MIT */
/** @file czero.h  All of czero: sharded optimizers and data-parallel training. */
#ifndef CZERO_CZERO_H
#define CZERO_CZERO_H

#include "czero/archive.h"
#include "czero/averaging.h"
#include "czero/backend.h"
#include "czero/base.h"
#include "czero/checkpoint.h"
#include "czero/ddp.h"
#include "czero/device.h"
#include "czero/group.h"
#include "czero/hooks.h"
#include "czero/in_backward.h"
#include "czero/join.h"
#include "czero/optim.h"
#include "czero/parts.h"
#include "czero/plan.h"
#include "czero/powersgd.h"
#include "czero/random.h"
#include "czero/rule.h"
#include "czero/sched.h"
#include "czero/shard.h"
#include "czero/shared.h"
#include "czero/state.h"
#include "czero/status.h"
#include "czero/sum.h"
#include "czero/tensor.h"
#include "czero/trace.h"
#include "czero/version.h"
#include "czero/zero.h"

#endif
