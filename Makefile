# One build for everything. `./dev build` calls it; by hand: make V=asan -j4
#
#   V         release, asan, tsan, coverage, bugs (planted bugs compiled in: tests/sim, tests/chaos) or fuzz (clang, libFuzzer)
#   build/$V  where all output goes: obj/, lib/, bin/
#
# `make install` and `make uninstall` take PREFIX (/usr/local) and DESTDIR.
#
# A folder src/X becomes lib/libX.a, tests/unit/X becomes bin/unit-X, tests/integration/X becomes bin/integration-X,
# tests/sim becomes bin/sim, tests/fuzz/X.c becomes bin/fuzz-X and bench/X.c becomes bin/bench-X. Sources are found by
# wildcard, so a new file needs no change here. A new folder of src/ needs one line: what it links with.

V ?= release
B := build/$V

# Which libraries a folder's code needs, in link order. The same direction as tools/lint/edges.txt.
needs_base := base
needs_core := core base
needs_store := store core base
needs_wire := wire core base
needs_rpc := rpc base
needs_duck := duck base
needs_query := query duck base
needs_exchange := exchange rpc wire core base
needs_exchange_sql := exchange duck rpc wire core base
needs_exec := exec query exchange duck rpc wire core base
needs_http := http base
needs_coordinator := coordinator http query exchange duck store rpc wire core base
needs_worker := worker exec query exchange duck rpc wire core base
needs_client := client exchange rpc wire core base
needs_cli := cli client exchange duck rpc wire core base
needs_main := main cli client coordinator worker exec query exchange duck http store rpc wire core base

# Which libraries from elsewhere a folder's own code needs; a program links with those of all the folders it needs.
libs_base := -ljson-c
libs_store := -lsqlite3 -lpq
libs_wire := -lprotobuf-c
libs_rpc := -lgrpc -lgpr -lpthread
libs_duck := -ldl -lpthread
libs_query := -lm
libs_http := -lmicrohttpd -lgnutls -lpthread
libs_exchange := -llz4 -lxxhash -lpthread
libs_exec := -lcurl -ldl -lpthread
libs_coordinator := -lpthread
libs_worker := -lpthread

CC       = gcc
AR       = ar
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes -Wswitch-enum -Wformat=2 \
            -Wvla -Wundef -Werror
CPPFLAGS := -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc -Itests -Itests/unit -Itests/integration -isystem $B/gen -isystem /usr/include/postgresql -isystem .cache/duckdb/include
STANDARD := -std=c17
CFLAGS   := $(STANDARD) $(WARNINGS) -g
LDFLAGS  :=

san_flags := -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all

ifeq ($V,release)
    CFLAGS += -O2
else ifeq ($V,asan)
    CFLAGS += $(san_flags) -fsanitize=address,undefined
    LDFLAGS += -fsanitize=address,undefined
else ifeq ($V,tsan)
    CFLAGS += $(san_flags) -fsanitize=thread
    LDFLAGS += -fsanitize=thread
else ifeq ($V,coverage)
    CFLAGS += -O0 --coverage
    LDFLAGS += --coverage
else ifeq ($V,bugs)
    CFLAGS += -O2
    CPPFLAGS += -DCAPSTAN_PLANTED_BUGS
else ifeq ($V,fuzz)
    CC = clang
    CFLAGS += $(san_flags) -fsanitize=fuzzer-no-link,address,undefined -w # the warnings are chosen for gcc
    CPPFLAGS += -D__SANITIZE_ADDRESS__
    LDFLAGS += -fsanitize=address,undefined
else
    $(error V=$V: no such variant; use release, asan, tsan, coverage, bugs or fuzz)
endif

# What there is to build.
folders   := $(sort $(patsubst src/%/,%,$(dir $(wildcard src/*/*.c))))
unit      := $(sort $(patsubst tests/unit/%/,%,$(dir $(wildcard tests/unit/*/*.c))))
unit_main := $(wildcard tests/unit/*.c)
integration := $(sort $(patsubst tests/integration/%/,%,$(dir $(wildcard tests/integration/*/*.c))))
sim       := $(wildcard tests/sim/*.c)
fuzz      := $(filter-out replay,$(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c)))
benches   := $(patsubst bench/%.c,%,$(wildcard bench/*.c))
sources   := $(sort $(wildcard src/*/*.c) $(wildcard tests/unit/*/*.c) $(wildcard tests/integration/*/*.c) \
             $(unit_main) $(sim) $(wildcard tests/fuzz/*.c) $(wildcard bench/*.c bench/*/*.c))

# A folder of tests/integration is called as the folder of src/ that it tests, or says here which that is; and what it
# borrows from other tests.
tests_postgres := store
fuzz_config    := cli
fuzz_http_request := coordinator
fuzz_plan_json := query
fuzz_physical_plan := query
fuzz_arrow_ipc := exchange
fuzz_shuffle_frame := exchange
bench_store    := coordinator
tests_service := coordinator
tests_exchange := exchange_sql
tests_sql := exec
bench_exchange := exchange_sql
borrows_store  := $(wildcard tests/unit/core/cluster*.c) tests/unit/core/row_store.c
borrows_coordinator := $(filter-out %_test.c %/selftest.c,$(wildcard tests/integration/store/*.c)) \
                       tests/integration/postgres/server.c $(borrows_store)
borrows_worker := tests/integration/rpc/sanitizers.c $(filter-out %_test.c,$(wildcard tests/unit/exchange/*.c))
borrows_cli    := tests/integration/rpc/sanitizers.c
borrows_service := tests/integration/rpc/sanitizers.c tests/integration/postgres/server.c tests/integration/http/talk.c \
                   $(filter-out %_test.c,$(wildcard tests/unit/exchange/*.c))
borrows_exec   := tests/integration/rpc/sanitizers.c tests/integration/query/table.c tests/unit/exchange/folder.c
borrows_sql    := tests/integration/rpc/sanitizers.c tests/integration/exec/sql_cluster.c tests/unit/exchange/folder.c \
                  $(addprefix tests/integration/query/,data.c order.c schema.c table.c) $(wildcard tests/integration/query/generator*.c)
borrows_exchange := tests/integration/rpc/sanitizers.c tests/integration/rpc/proxy.c $(filter-out %_test.c,$(wildcard tests/unit/exchange/*.c))

# Sources that the build makes itself, by folder, in gen/: the store's migrations as C, the messages of the protocol, the
# generator and the queries of `capstan bench sql`, the dashboard. The last is the same for all variants and lies in
# build/web.
migrations := $(wildcard src/store/migrations/*.sql)
web        := $(wildcard web/*.js web/*.json web/*.html web/public/* web/src/*.ts web/src/*.tsx web/src/*.css web/src/*/*.ts web/src/*/*.tsx)
tpch       := tests/data/generate-tpch.sql tests/data/sql/tpch.sql
made_store := $B/gen/migrations.o
made_coordinator := $B/gen/dashboard.o
made_main  := $B/gen/tpch.o
made_wire  := $B/gen/capstan.pb-c.o $B/gen/pb.o
generated  := $B/gen/capstan.pb-c.h $B/gen/pb.h

objects = $(patsubst %.c,$B/obj/%.o,$1)
needs   = $(if $(needs_$1),$(needs_$1),$(error Makefile: say what $1 links with: needs_$1))
libs    = $(patsubst %,$B/lib/lib%.a,$(filter $(folders),$(needs)))
foreign = $(foreach f,$(filter $(folders),$(needs)),$(libs_$f))

libraries := $(patsubst %,$B/lib/lib%.a,$(folders))
programs  := $(patsubst %,$B/bin/unit-%,$(unit)) $(patsubst %,$B/bin/integration-%,$(integration)) \
             $(if $(sim),$B/bin/sim) $(patsubst %,$B/bin/fuzz-%,$(fuzz)) $(patsubst %,$B/bin/bench-%,$(benches)) \
             $(if $(filter main,$(folders)),$B/bin/capstan $B/bin/operator-worker) \
             $(if $(filter release asan,$V),$B/bin/c-client $B/bin/c-client-static $B/lib/capstan.pc)

# Plug-ins: the examples, and what the tests load. Each source becomes plugins/NAME.so, made with the public headers only.
plugin_sources := $(wildcard examples/executor-plugin/*.c examples/operator-plugin/*.c) \
                  $(wildcard tests/integration/exec/plugins/*.c tests/e2e/plugins/*.c tests/chaos/clock.c)
plugins := $(patsubst %.c,$B/plugins/%.so,$(notdir $(plugin_sources)))

.PHONY: all generated show-flags
.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
all: $(libraries) $(programs) $(plugins)
generated: $(generated)

# For the linters: what a source must be compiled with to be understood.
show-flags:
	@echo $(CPPFLAGS) $(STANDARD)

# Two small files that change only when their content does: objects depend on the flags, archives and programs on the
# list of sources, so that other flags recompile and a removed source leaves its archive.
remember = $(shell mkdir -p $B && { printf '%s\n' '$(strip $2)' | cmp -s - $B/$1 || printf '%s\n' '$(strip $2)' >$B/$1; })
$(call remember,flags,$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))
$(call remember,sources,$(sources) $(migrations) $(web))

# gcc does not name what it finds with -isystem as a dependency, so the generated headers are one of everybody.
$B/obj/%.o: %.c $B/flags $(generated)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$B/gen/migrations.c: tools/embed-migrations.sh $(migrations) $B/sources
	@mkdir -p $(@D)
	tools/embed-migrations.sh src/store/migrations >$@

$B/gen/tpch.c: tools/embed-tpch.sh $(tpch)
	@mkdir -p $(@D)
	tools/embed-tpch.sh $(tpch) >$@

build/web/dashboard.c: tools/build-web.sh $(web)
	tools/build-web.sh $@

$B/gen/dashboard.o: build/web/dashboard.c src/coordinator/web.h $B/flags
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$B/gen/capstan.pb-c.c $B/gen/capstan.pb-c.h &: proto/capstan.proto
	@mkdir -p $(@D)
	protoc-c --proto_path=proto --c_out=$(@D) $<

$B/gen/pb.h: tools/pb-names.sh $B/gen/capstan.pb-c.h
	tools/pb-names.sh h $B/gen/capstan.pb-c.h >$@

$B/gen/pb.c: tools/pb-names.sh $B/gen/capstan.pb-c.h $B/gen/pb.h
	tools/pb-names.sh c $B/gen/capstan.pb-c.h >$@

# What other programs generated is not held to our warnings.
$B/gen/capstan.pb-c.o: CFLAGS += -w

$B/gen/%.o: $B/gen/%.c $B/flags
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

define library
$B/lib/lib$1.a: $(call objects,$(wildcard src/$1/*.c)) $(made_$1) $B/sources
	@mkdir -p $$(@D)
	@rm -f $$@
	$(AR) rcsD $$@ $$(filter %.o,$$^)
endef
$(foreach f,$(folders),$(eval $(call library,$f)))

define plugin
$B/plugins/$(basename $(notdir $1)).so: $1 $(wildcard include/capstan/*.h) $B/flags
	@mkdir -p $$(@D)
	$(CC) -D_POSIX_C_SOURCE=200809L -Iinclude $(CFLAGS) $(LDFLAGS) -fPIC -shared -fvisibility=hidden $$< -o $$@
endef
$(foreach p,$(plugin_sources),$(eval $(call plugin,$p)))
$B/bin/integration-exec: | $(plugins)

# $1 = program, $2 = its sources, $3 = the folder whose libraries it links with, $4 = more libraries
define program
$B/bin/$1: $(call objects,$2) $(call libs,$3) $B/sources
	@mkdir -p $$(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) $$(filter %.o %.a,$$^) $4 $(call foreign,$3) -o $$@
endef
$(foreach u,$(unit),$(eval $(call program,unit-$u,$(wildcard tests/unit/$u/*.c) $(unit_main),$u,-lcmocka)))
$(foreach i,$(integration),$(eval $(call program,integration-$i,$(wildcard tests/integration/$i/*.c) $(borrows_$i) \
    $(unit_main),$(or $(tests_$i),$i),-lcmocka)))
$(if $(sim),$(eval $(call program,sim,$(sim),core)))
$(foreach z,$(fuzz),$(eval $(call program,fuzz-$z,tests/fuzz/$z.c $(if $(filter fuzz,$V),,tests/fuzz/replay.c),$(or $(fuzz_$z),wire), \
    $(if $(filter fuzz,$V),-fsanitize=fuzzer))))
$(foreach b,$(benches),$(eval $(call program,bench-$b,bench/$b.c $(wildcard bench/$b/*.c),$(or $(bench_$b),$b))))
$(if $(filter main,$(folders)),$(eval $(call program,capstan,,main)))

# A worker of one's own (include/capstan/worker.h): an archive with all of Capstan but its main(), of which only the two
# public functions can be seen, so that no name in it can clash with one of the user's; and the flags that a program needs
# to be linked with it. The example is made in the way that docs/operators.md shows.
worker_objects := $(foreach f,$(filter $(folders),$(needs_main)),$(filter-out %/main.o,$(call objects,$(wildcard src/$f/*.c))) $(made_$f))
$B/lib/libcapstan_worker.a: $(worker_objects) $B/sources
	@mkdir -p $(@D)
	@rm -f $@
	ld -r $(filter %.o,$^) -o $B/lib/capstan_worker.o
	objcopy --keep-global-symbol=capstan_worker_main --keep-global-symbol=capstan_register_operator $B/lib/capstan_worker.o
	$(AR) rcsD $@ $B/lib/capstan_worker.o
	@rm -f $B/lib/capstan_worker.o

$B/lib/capstan-worker.flags: Makefile $B/flags
	@mkdir -p $(@D)
	echo '-I$(CURDIR)/include -L$(CURDIR)/$B/lib $(LDFLAGS) -lcapstan_worker $(call foreign,main)' >$@

operator_worker := examples/operator-worker/worker.c examples/operator-plugin/add_five.c
$B/bin/operator-worker: $(operator_worker) $(wildcard include/capstan/*.h examples/operator-plugin/*.h) \
                        $B/lib/libcapstan_worker.a $B/lib/capstan-worker.flags
	@mkdir -p $(@D)
	$(CC) -std=c17 $(operator_worker) @$B/lib/capstan-worker.flags -o $@

# libcapstan (include/capstan/client.h): the client of the command line, for programs in C. Of both forms only the functions
# of that header can be seen. The objects are the same as everybody's, hence the flags of a shared library for their folders.
VERSION   := $(shell sed -n 's/^\#define CAPSTAN_VERSION "\(.*\)"/\1/p' src/cli/version.h)
SONAME    := libcapstan.so.0
pic_flags := -fPIC -fvisibility=hidden
$(call remember,pic,$(pic_flags))
$(foreach f,$(needs_client),$(call objects,$(wildcard src/$f/*.c)) $(made_$f)): CFLAGS += $(pic_flags)
$(foreach f,$(needs_client),$(call objects,$(wildcard src/$f/*.c)) $(made_$f)): $B/pic

public_objects := $(call objects,$(wildcard src/client/public*.c))
$B/lib/$(SONAME): $(public_objects) $(call libs,client) $B/sources
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-z,defs -Wl,-soname,$(SONAME) $(filter %.o %.a,$^) $(call foreign,client) -o $@

$B/lib/libcapstan.so: $B/lib/$(SONAME)
	ln -sf $(SONAME) $@

$B/lib/libcapstan.a: $B/lib/$(SONAME)
	@rm -f $@
	nm -D --defined-only $< | awk '$$3 ~ /^capstan_/ { print $$3 }' >$B/lib/capstan_client.symbols
	ld -r $(public_objects) --start-group $(call libs,client) --end-group -o $B/lib/capstan_client.o
	objcopy --keep-global-symbols=$B/lib/capstan_client.symbols $B/lib/capstan_client.o
	$(AR) rcsD $@ $B/lib/capstan_client.o
	@rm -f $B/lib/capstan_client.o $B/lib/capstan_client.symbols

$B/lib/capstan.pc: clients/c/capstan.pc.in src/cli/version.h $B/flags
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(strip $(call foreign,client))|' $< >$@

# The example, as a program of one's own would be built, once with each form of the library.
c_client := examples/c-client/client.c
$B/bin/c-client: $(c_client) $(wildcard include/capstan/*.h) $B/lib/libcapstan.so
	@mkdir -p $(@D)
	$(CC) -std=c17 $(WARNINGS) -g -Iinclude $(LDFLAGS) $< -L$B/lib -lcapstan -lpthread -Wl,-rpath,'$$ORIGIN/../lib' -o $@

$B/bin/c-client-static: $(c_client) $(wildcard include/capstan/*.h) $B/lib/libcapstan.a
	@mkdir -p $(@D)
	$(CC) -std=c17 $(WARNINGS) -g -Iinclude $(LDFLAGS) $< $B/lib/libcapstan.a $(call foreign,client) -o $@

.PHONY: libcapstan
libcapstan: $B/lib/libcapstan.so $B/lib/libcapstan.a $B/lib/capstan.pc $B/bin/c-client $B/bin/c-client-static

# packaging/install.sh has the list of what goes where, and what the variables mean.
PREFIX     ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
installed  := $B/bin/capstan $B/lib/libcapstan_worker.a $B/lib/capstan-worker.flags $B/lib/libcapstan.so \
              $B/lib/libcapstan.a $B/lib/capstan.pc
installer   = BUILD='$B' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' DESTDIR='$(DESTDIR)' packaging/install.sh

.PHONY: install uninstall installable
installable: $(installed)
install: $(installed)
	$(installer) install

uninstall:
	$(installer) uninstall

-include $(patsubst %.o,%.d,$(call objects,$(sources)) $(made_store) $(made_wire) $(made_main))
