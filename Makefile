# SPDX-License-Identifier: MIT
# A short front for CMake: `make help` lists the targets. Each works as the first command after a
# clone; Debian packages that are missing are installed (SETUP=no: only named). CMake users need
# none of this: `cmake --preset release && cmake --build --preset release`.
PREFIX ?= /usr/local
N ?= 1000
DEMO_ARGS ?= --ranks 2 --parts 12 --proof --out build/demo
STEPS ?= 400
RUNS ?= 1000000
SEEDS ?= 1-200
LEAST ?= 0
MPIRUN ?= OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
	OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none mpirun.openmpi
export SETUP

.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
.PHONY: build help test demo demo-mpi demo-parts test-nightly kill-test failures sanitize coverage valgrind fuzz lint format install bench bench-compare bench-peers bench-overlap bench-multihost bench-torch test-torch2 abi-update clean setup-%

build: setup-build build/release/build.ninja ## the library, optimised, in build/release (default)
	@cmake --build --preset release

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | \
	while IFS='|' read -r target what; do printf '  make %-14s%s\n' "$$target" "$$what"; done

test: setup-test build/dev/build.ninja ## build and run all tests
	@cmake --build --preset dev
	@ctest --preset dev

demo: setup-demo build/release/build.ninja ## train a small GPT on two ranks, stop it, go on with three; is that the same as on others?
	@cmake --build --preset release --target example_12_gpt czero_tool
	@mkdir -p build/demo
	@rm -rf build/demo/stopped
	@build/release/examples/12_gpt $(DEMO_ARGS) --save build/demo/checkpoints --stop-at 90%
	@cp -R build/demo/checkpoints build/demo/stopped
	@echo && echo "the same with --resume and --ranks 3"
	@build/release/examples/12_gpt $(DEMO_ARGS) --save build/demo/checkpoints --resume --ranks 3
	@scripts/demo-parts.sh build/release again build/demo $(DEMO_ARGS)

demo-mpi: setup-mpi ## the same on two MPI processes
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target example_12_gpt czero_mpi_openmpi
	@$(MPIRUN) -n 2 build/release/examples/12_gpt --parts 12 --out build/demo-mpi

demo-parts: setup-mpi ## its first STEPS steps (400) on 1, 2, 3 and 5 ranks and 2 MPI processes: are they the same bits?
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target example_12_gpt czero_tool czero_mpi_openmpi
	@scripts/demo-parts.sh build/release ranks build/demo-parts $(STEPS) env $(MPIRUN)

test-nightly: setup-nightly build/nightly/build.ninja build/clang/build.ninja build/mpich/build.ninja ## long tests at -O2, and all with clang, and with MPICH
	@cmake --build --preset clang
	@ctest --preset clang
	@cmake --build --preset mpich
	@ctest --preset mpich
	@cmake --build --preset nightly
	@ctest --preset nightly
	@$(MAKE) test-torch2
	@$(MAKE) lint

kill-test: setup-test build/dev/build.ninja ## kill a job that saves N times (N=1000), and look at what is left
	@cmake --build --preset dev --target tests_checkpoint_kill_job tests_checkpoint_kill_kill czero_mpi_openmpi
	@scripts/kill-test.sh build/dev/tests/checkpoint/kill $(N) build/kill-test.json env $(MPIRUN)

failures: setup-test build/dev/build.ninja ## a training that fails at random moments, for SEEDS (1-200), in PARTS (none); must end as if it had not
	@cmake --build --preset dev --target tests_failures_train czero_tool czero_mpi_openmpi
	@sh tests/failures/failures.sh build/dev/tools/czero $(SEEDS) build/dev/tests/failures/train {folder} 120 {seed} 25 $(PARTS)

sanitize: setup-test build/asan/build.ninja build/tsan/build.ninja ## tests with ASan, UBSan and TSan
	@cmake --build --preset asan
	@ctest --preset asan
	@cmake --build --preset tsan
	@ctest --preset tsan

coverage: setup-test setup-coverage ## all tests with ASan and UBSan, and how many lines of src/ they run (at least LEAST per cent)
	@cmake --preset asan -D CZERO_COVERAGE=ON
	@cmake --build --preset asan
	@find build/asan -name '*.gcda' -delete
	@ctest --preset asan
	@scripts/coverage.sh build/asan $(LEAST)

valgrind: setup-test setup-valgrind build/dev/build.ninja ## some tests of every part under valgrind
	@cmake --build --preset dev
	@scripts/valgrind.sh build/dev

fuzz: setup-fuzz build/fuzz/build.ninja ## RUNS random inputs for each reader of files (1000000), or 20s: so many seconds
	@cmake --build --preset fuzz
	@scripts/fuzz.sh build/fuzz $(RUNS)

lint: setup-lint build/dev/build.ninja ## clang-format, clang-tidy, cppcheck, gcc -fanalyzer: no complaint is the rule
	@scripts/lint.sh $(LINT)

format: setup-lint ## bring all C files into the house layout
	@scripts/lint.sh --fix

install: setup-build ## to PREFIX (/usr/local), under DESTDIR if set
	@cmake --preset release -D CMAKE_INSTALL_PREFIX="$(PREFIX)"
	@cmake --build --preset release
	@cmake --install build/release

bench: setup-bench build/release/build.ninja ## the machine's limits, and czero beside them; build/bench/results.json
	@cmake --build --preset release
	@ONLY="$(ONLY)" scripts/bench.sh build/release/bench build/bench env $(MPIRUN)

bench-compare: ## the last make bench beside that of the newest release: what got worse
	@sh scripts/bench-compare.sh

bench-peers: setup-bench build/release/build.ninja ## the same work by PyTorch, by Open MPI and by czero, in turns
	@cmake --build --preset release
	@MPIRUN="env $(MPIRUN)" sh scripts/bench-peers.sh build/release build/bench $(PARTS)

bench-torch: setup-torch build/release/build.ninja ## a training with PyTorch's ZeRO, and with one import changed: losses and time
	@cmake --build --preset release --target czero
	@sh scripts/bench-torch.sh build/release build/bench $(ROUNDS)

test-torch2: setup-torch build/release/build.ninja ## the Python tests with the newest PyTorch, which pip puts into build/torch2
	@cmake --build --preset release --target czero czero_tool
	@sh tests/python/torch2.sh build/release build/torch2

bench-overlap: setup-bench build/release/build.ninja ## how much communication a backward pass hides, on a 1 Gbit/s link
	@cmake --build --preset release
	@sh bench/multihost/overlap.sh build/release/bench/multihost/overlap build/bench/overlap.json

bench-multihost: setup-bench build/release/build.ninja ## all-reduces between two hosts: small ones beside MPI's, a large one on a link of 1 Gbit/s
	@cmake --build --preset release
	@sh bench/multihost/small.sh build/release/bench/multihost/small
	@sh bench/multihost/all_reduce.sh build/release/bench/multihost/all_reduce

abi-update: setup-test build/dev/build.ninja ## accept the exported symbols as they are now
	@cmake --build --preset dev --target czero
	@sh tests/abi/symbols.sh --update build/dev/libczero.so

clean: ## remove build/
	@rm -rf build

setup-%:
	@scripts/setup.sh $*

build/%/build.ninja: CMakePresets.json
	@cmake --preset $*
	@touch $@
