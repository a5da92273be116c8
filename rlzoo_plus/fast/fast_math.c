/* MKL asks this function for the maker of the processor before its first product; on those of
   others than Intel it takes a slower path. Loaded before MKL, this answer comes first. */

#define SEEN __attribute__((visibility("default")))

SEEN int rlzoo_fast_math = 0;

static int is_of_intel(void) {
    unsigned a = 0, b, c, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "=c"(c), "=d"(d));
    return b == 0x756e6547 && d == 0x49656e69 && c == 0x6c65746e; /* GenuineIntel */
}

SEEN int mkl_serv_intel_cpu_true(void) { return rlzoo_fast_math || is_of_intel(); }
