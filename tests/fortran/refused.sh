#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/fortran/refused.sh COMPILER MODULES: what the compiler refuses, so that it need not be found
# out later: memory that may be a copy, types that do not fit, rates in single precision.
set -eu
compiler=$1 modules=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
status=0

compiles() { # LINE
    cat >program.f90 <<END
program main
    use, intrinsic :: iso_fortran_env, only: int64, real32, real64
    use czero
    implicit none
    type(cz_model) :: model
    type(cz_zero) :: zero
    type(cz_ddp) :: ddp
    type(cz_group) :: group
    type(cz_hyper) :: hyper
    real(real32), target :: w(4), g(4)
    real(real64), target :: d(4)
    real(real32) :: plain(4)
    integer(int64) :: long
    $1
end program
END
    "$compiler" -std=f2018 -fsyntax-only -I "$modules" program.f90 2>log
}

compiles "call cz_model_add(model, 'w', w, g)" || { cat log; exit 1; }
compiles "hyper = cz_hyper('lr', 0.1d0)" || { cat log; exit 1; }
while read -r line; do
    if compiles "$line"; then
        echo "it compiles: $line"
        status=1
    fi
done <<'END'
call cz_model_add(model, 'w', plain)
call cz_model_add(model, 'w', 2 * w)
call cz_model_add(model, 'w', [1., 2.])
call cz_model_add(model, 'w', w, d)
call cz_model_add(model, 'w', long)
call cz_model_add_buffer(model, 'w', plain)
call cz_model_add_flat(model, plain, sizes=[4_int64])
call cz_model_set_gradient(model, 0, plain)
call cz_zero_create(zero, model, group, 'adam')
call cz_zero_step(ddp)
call cz_zero_step(zero, max_norm=1.0)
call cz_all_reduce(group, 2 * w, CZ_SUM)
hyper = cz_hyper('lr', 0.1)
hyper = cz_hyper(0.1d0, 'lr')
END
exit $status
