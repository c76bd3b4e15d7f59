/* Operations of XLA that C lacks or defines differently, for a C compiler of the host and for NVRTC. */

#ifdef __CUDACC__
#define FUNCTION static __device__ __forceinline__
#define INF_32 __builtin_bit_cast(float, 0x7f800000u)
#define NAN_32 __builtin_bit_cast(float, 0x7fc00000u)
#define ROTATED(x, n) __funnelshift_l(x, x, n)
#define ROLLED _Pragma("unroll 1")
#ifdef EXACT
#define DIVIDE __fdiv_rn
#define sqrtf __fsqrt_rn
#endif
#else
#include <math.h>
#include <stdbool.h>
#include <string.h>
#define FUNCTION static inline __attribute__((always_inline))
#define INF_32 __builtin_inff()
#define NAN_32 __builtin_nanf("")
#define ROTATED(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
#define ROLLED
#endif

/* Start of a round: nothing, or an instruction that marks it in the machine code */
#ifndef BEGIN_ROUND
#define BEGIN_ROUND
#endif

/* Bits */

#ifdef __CUDACC__
#define bits_of __float_as_uint
#define float_of __uint_as_float
#define popcount_32 __popc
#define clz_32 __clz
#else
#define COPY_BITS(name, to, from) FUNCTION to name(from x) { to y; memcpy(&y, &x, 4); return y; }
COPY_BITS(bits_of, unsigned, float) COPY_BITS(float_of, float, unsigned)
FUNCTION int popcount_32(unsigned x) { return __builtin_popcount(x); }
FUNCTION int clz_32(unsigned x) { return x ? __builtin_clz(x) : 32; }
#endif

/* Choice whose cases are both read first. For `i == k ? a[i] : 0` NVRTC would read `a[k]` in a branch: ten choices for ten registers. */
#define CHOOSE(kind, type) FUNCTION type choose_##kind(bool c, type a, type b) { return c ? a : b; }
CHOOSE(b, bool) CHOOSE(i, int) CHOOSE(u, unsigned) CHOOSE(f, float)

/* Assigns to x if the condition holds. */
#define SET_IF(c, x, ...) do { if (c) x = __VA_ARGS__; } while (0)
#define ANY(c) (c)

/* Integers: sums wrap around, and cases that C leaves undefined are those of XLA. */
FUNCTION int add_i(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
FUNCTION int sub_i(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
FUNCTION int mul_i(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
FUNCTION int div_i(int a, int b) { return b == 0 ? -1 : b == -1 ? sub_i(0, a) : a / b; }
FUNCTION int rem_i(int a, int b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
FUNCTION unsigned div_u(unsigned a, unsigned b) { return b == 0 ? 0xffffffffu : a / b; }
FUNCTION unsigned rem_u(unsigned a, unsigned b) { return b == 0 ? a : a % b; }
FUNCTION unsigned shl_u(unsigned a, unsigned n) { return n < 32 ? a << n : 0; }
FUNCTION unsigned shr_u(unsigned a, unsigned n) { return n < 32 ? a >> n : 0; }
FUNCTION int shl_i(int a, int n) { return (int)shl_u((unsigned)a, (unsigned)n); }
FUNCTION int shr_i(int a, int n) { return (int)shr_u((unsigned)a, (unsigned)n); }
FUNCTION int sar_i(int a, unsigned n) { return a >> (n < 32 ? n : 31); }
FUNCTION int max_i(int a, int b) { return a > b ? a : b; }
FUNCTION int min_i(int a, int b) { return a < b ? a : b; }
FUNCTION unsigned max_u(unsigned a, unsigned b) { return a > b ? a : b; }
FUNCTION unsigned min_u(unsigned a, unsigned b) { return a < b ? a : b; }
FUNCTION int abs_i(int a) { return a < 0 ? sub_i(0, a) : a; }
FUNCTION int sign_i(int a) { return (a > 0) - (a < 0); }

FUNCTION int int_of(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : (int)x;
}
FUNCTION unsigned unsigned_of(float x) { return x >= 4294967296.0f ? 0xffffffffu : x > 0.0f ? (unsigned)x : 0u; }

/* Floats: a maximum or minimum is NaN if an operand is. */
FUNCTION float max_f(float a, float b) { return a != a || a > b ? a : b; }
FUNCTION float min_f(float a, float b) { return a != a || a < b ? a : b; }
FUNCTION float sign_f(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }

/* Divisions and roots. A GPU's reciprocal is off by up to one unit in the last place; a quotient is corrected once by its remainder, so that n / n
   is 1 and no mean of numbers up to 1 is larger. Where the correction is NaN, the first quotient is 0, infinite or NaN as it should be.
   Divisors above 2^126 have a reciprocal below 2^-126, that is 0, and a quotient of 0 (NaN for an infinite dividend). Scaling them would cost as
   much as the correction, and only sentinels are that large. Dividends below 2^-102 have a remainder of 0, and errors of some units.
   `-DDIVIDE=__fdiv_rn` divides by the rules of IEEE. */
#if defined(__CUDACC__) && !defined(RECIPROCAL)
#define RECIPROCAL reciprocal_f
FUNCTION float reciprocal_f(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); /* __fdividef(1.0f, x) takes one more instruction. */
    return r;
}
#endif
#ifdef RECIPROCAL
FUNCTION float corrected_f(float a, float b) {
    const float r = RECIPROCAL(b), q = a * r, better = fmaf(fmaf(-q, b, a), r, q);
    return better == better ? better : q;
}
#endif
#if defined(RECIPROCAL) && !defined(DIVIDE)
#define DIVIDE corrected_f
#elif !defined(DIVIDE)
#define DIVIDE(a, b) ((a) / (b))
#endif
FUNCTION float div_f(float a, float b) { return DIVIDE(a, b); }
#if !defined(__CUDACC__) && !defined(rsqrtf)
#define rsqrtf(x) (1.0f / sqrtf(x))
#endif
FUNCTION float rsqrt_f(float x) { return rsqrtf(x); }
FUNCTION float logistic_f(float x) { return div_f(1.0f, 1.0f + expf(-x)); }
FUNCTION bool is_finite_f(float x) { return fabsf(x) < INF_32; }

/* Integer in the total order of floats: -0 below 0, NaN at the ends. */
FUNCTION int order_of(float x) {
    const int bits = (int)bits_of(x);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

/* Giles (2010), "Approximating the erfinv function", as in XLA. Only the absolute error of w matters, so a GPU may take the logarithm of
   1 - x^2, rounded once, from its special unit. One draw in three hundred needs the other polynomial. */
#if defined(__CUDACC__) && !defined(LOG_1P_OF_MINUS_SQUARE)
#define LOG_1P_OF_MINUS_SQUARE(x) __logf(fmaf(-x, x, 1.0f))
#elif !defined(LOG_1P_OF_MINUS_SQUARE)
#define LOG_1P_OF_MINUS_SQUARE(x) log1pf(-x * x)
#endif
#if defined(__CUDACC__) && !defined(TERM)
#define TERM(c, p, w) fmaf(p, w, c)
#elif !defined(TERM)
#define TERM(c, p, w) ((c) + (p) * (w))
#endif
FUNCTION float erf_inv_f(float x) {
    const float w = -LOG_1P_OF_MINUS_SQUARE(x), near = w - 2.5f;
    float p = 2.81022636e-08f;
    p = TERM(3.43273939e-07f, p, near), p = TERM(-3.5233877e-06f, p, near), p = TERM(-4.39150654e-06f, p, near);
    p = TERM(0.00021858087f, p, near), p = TERM(-0.00125372503f, p, near), p = TERM(-0.00417768164f, p, near);
    p = TERM(0.246640727f, p, near), p = TERM(1.50140941f, p, near);
    if (!(w < 5.0f)) {
        const float far = sqrtf(w) - 3.0f;
        p = TERM(0.000100950558f, -0.000200214257f, far), p = TERM(0.00134934322f, p, far), p = TERM(-0.00367342844f, p, far);
        p = TERM(0.00573950773f, p, far), p = TERM(-0.0076224613f, p, far), p = TERM(0.00943887047f, p, far);
        p = TERM(1.00167406f, p, far);
        p = fabsf(x) == 1.0f ? INF_32 : TERM(2.83297682f, p, far);
    }
    return p * x;
}

/* Salmon et al. (2011): the block (*x0, *x1) under the key (k0, k1) */
#define ROUND(n) a = a + b, b = ROTATED(b, n) ^ a
#define THREEFRY(word)                                                                                                                \
    FUNCTION void threefry(word k0, word k1, word *x0, word *x1) {                                                                    \
        const word k2 = k0 ^ k1 ^ 0x1BD11BDAu;                                                                                        \
        word a = *x0 + k0, b = *x1 + k1;                                                                                              \
        ROUND(13), ROUND(15), ROUND(26), ROUND(6), a = a + k1, b = b + (k2 + 1u);                                                     \
        ROUND(17), ROUND(29), ROUND(16), ROUND(24), a = a + k2, b = b + (k0 + 2u);                                                    \
        ROUND(13), ROUND(15), ROUND(26), ROUND(6), a = a + k0, b = b + (k1 + 3u);                                                     \
        ROUND(17), ROUND(29), ROUND(16), ROUND(24), a = a + k1, b = b + (k2 + 4u);                                                    \
        ROUND(13), ROUND(15), ROUND(26), ROUND(6), a = a + k2, b = b + (k0 + 5u);                                                     \
        *x0 = a, *x1 = b;                                                                                                             \
    }
THREEFRY(unsigned)
