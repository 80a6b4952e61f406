/* SPDX-License-Identifier: MIT */
/* The CPU's memory: zeroed, aligned, counted; copies; what happens when there is none. */
#include "device/cpu/cpu.h"
#include "support/cz_test.h"

#include <string.h>

TEST(the_cpu_is_a_table)
{
    const cz_device *cpu = cz_device_cpu();
    assert_int_equal(cpu->abi, CZ_DEVICE_ABI);
    assert_int_equal(cpu->size, sizeof(cz_device));
    assert_string_equal(cpu->name, "cpu");
    assert_ptr_equal(cpu, cz_device_cpu());
}

TEST(allocate)
{
    const cz_device *cpu = cz_device_cpu();
    const size_t before = cz_memory_bytes(CZ_MEMORY_STATE);
    for (size_t bytes = 0; bytes <= 5000; bytes += 1 + bytes / 3) {
        void *memory = NULL;
        assert_ok(cpu->allocate(CZ_MEMORY_STATE, bytes, &memory));
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(((char *)memory)[i], 0);
        assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), before + bytes);
        cpu->release(memory);
    }
    cpu->release(NULL);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STATE), before);
}

TEST(no_memory)
{
    void *memory = &memory;
    cz_test_fail_allocation(1);
    assert_int_equal(cz_device_cpu()->allocate(CZ_MEMORY_STATE, 12345, &memory), CZ_ERR_MEMORY);
    assert_true(cz_test_allocation_reset());
    assert_null(memory);
    assert_non_null(strstr(cz_last_error(), "12345"));
}

TEST(copy_and_zero)
{
    const cz_device *cpu = cz_device_cpu();
    char from[300], to[300];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)(i * 7 + 1);
    for (size_t bytes = 0; bytes < 270; bytes++) {
        memset(to, 9, sizeof to);
        assert_ok(cpu->copy(NULL, to + 3, from + 5, bytes));
        assert_memory_equal(to + 3, from + 5, bytes);
        assert_true(to[2] == 9 && to[3 + bytes] == 9);
        assert_ok(cpu->zero(NULL, to + 3, bytes));
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(to[3 + i], 0);
        assert_true(to[2] == 9 && to[3 + bytes] == 9);
    }
    assert_ok(cpu->copy(NULL, NULL, NULL, 0));
    assert_ok(cpu->zero(NULL, NULL, 0));
}

/* Each type, rounded; nothing beside the elements. */
/* Destinations just after their sources within pages go another way. */
TEST(copy_at_every_distance)
{
    enum { MOST = 3 * 4096 + 77, ROOM = MOST + 4096 };
    static const size_t sizes[] = {1984, 4095, 4096, 4097, 2 * 1984, MOST};
    const cz_device *cpu = cz_device_cpu();
    _Alignas(4096) static unsigned char from[ROOM], to[ROOM];
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t after = 0; after < 40; after++) {
            const size_t bytes = sizes[k];
            memset(to, 0xee, sizeof to);
            assert_ok(cpu->copy(NULL, to + after, from, bytes));
            assert_memory_equal(to + after, from, bytes);
            assert_int_equal(to[after + bytes], 0xee);
            assert_true(after == 0 || to[after - 1] == 0xee);
        }
}

TEST(fill)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_F64, CZ_F16, CZ_BF16};
    const cz_device *cpu = cz_device_cpu();
    for (int k = 0; k < 4; k++) {
        for (int count = 0; count < 40; count++) {
            double memory[48];
            const size_t size = cz_dtype_size(dtypes[k]);
            char *bytes = (char *)memory;
            memset(memory, 9, sizeof memory);
            assert_ok(cpu->fill(NULL, dtypes[k], 0.1, count, bytes + 8));
            for (int i = 0; i < count; i++) {
                const double wide = 0.1;
                const float single = 0.1f;
                const uint16_t half = dtypes[k] == CZ_F16 ? 0x2e66 : 0x3dcd;
                const void *wanted = k == 0   ? (const void *)&single
                                     : k == 1 ? (const void *)&wide
                                              : &half;
                assert_memory_equal(bytes + 8 + (size_t)i * size, wanted, size);
            }
            assert_true(bytes[7] == 9 && bytes[8 + (size_t)count * size] == 9);
        }
    }
    assert_int_equal(cpu->fill(NULL, CZ_I32, 1, 0, NULL), CZ_ERR_UNSUPPORTED);
    assert_string_equal(cz_last_error(), "cpu: filling i32 values with a number");
}
