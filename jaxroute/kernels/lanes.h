/* Several runs at once, in C++ for a CPU: where C for one run has a number, a vector holds the numbers of LANES runs. Included after
   `prelude.h`, whose functions of the same names serve numbers that all these runs share. */

#include <stdlib.h>

#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#endif
/* Named instructions on 512 or 256 bits, where loops over lanes take longer to compile or are not vectorised. Some have other names in Clang,
   which differ between its versions. */
#if defined(__AVX512F__) && defined(__AVX512DQ__) && LANES == 16
#define AVX512
#elif defined(__AVX2__) && defined(__FMA__) && LANES == 8
#define AVX2
#endif
#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#define INSIDE inline __attribute__((always_inline))
#define LANE_BY_LANE for (int lane = 0; lane < LANES; ++lane)
#ifdef __clang__ /* It would not unroll a loop over lanes, and leave its vectors in memory. */
#define UNROLLED _Pragma("clang loop unroll(full)")
#define EACH_LANE UNROLLED LANE_BY_LANE
#else
#define UNROLLED _Pragma("GCC unroll 16")
#define EACH_LANE LANE_BY_LANE
#endif

typedef float vector_f __attribute__((vector_size(4 * LANES)));
typedef int vector_i __attribute__((vector_size(4 * LANES)));
typedef unsigned vector_u __attribute__((vector_size(4 * LANES)));

/* Numbers of LANES runs: floats (F), integers (I), words (U), and conditions (B: all bits, or none). */
#define LOGIC(o, ...) friend INSIDE B operator o(B a, B b) { return __VA_ARGS__; }
struct B {
    vector_i v;
    B() = default;
    INSIDE B(vector_i x) : v(x) {}
    INSIDE B(bool x) : v((vector_i){} - (int)x) {}
    LOGIC(&, a.v & b.v) LOGIC(|, a.v | b.v) LOGIC(^, a.v ^ b.v) LOGIC(&&, a.v & b.v) LOGIC(||, a.v | b.v)
    LOGIC(==, ~(a.v ^ b.v)) LOGIC(!=, a.v ^ b.v)
    friend INSIDE B operator!(B a) { return ~a.v; }
};

#define INFIX(T, o) friend INSIDE T operator o(T a, T b) { return a.v o b.v; }
#define COMPARISON(T, o) friend INSIDE B operator o(T a, T b) { return B((vector_i)(a.v o b.v)); }
#define NUMBER(T, vector, number)                                                                                                     \
    vector v;                                                                                                                         \
    T() = default;                                                                                                                    \
    INSIDE T(vector x) : v(x) {}                                                                                           \
    INSIDE T(number x) : v(x - (vector){}) {}                                                                              \
    INFIX(T, +) INFIX(T, -) INFIX(T, *)                                                                                               \
    COMPARISON(T, ==) COMPARISON(T, !=) COMPARISON(T, <) COMPARISON(T, <=) COMPARISON(T, >) COMPARISON(T, >=)                         \
    friend INSIDE T operator-(T a) { return -a.v; }
#define WHOLE(T)                                                                                                                      \
    INFIX(T, &) INFIX(T, |) INFIX(T, ^)                                                                                               \
    friend INSIDE T operator~(T a) { return ~a.v; }                                                                        \
    friend INSIDE T operator<<(T a, int n) { return a.v << n; }                                                            \
    friend INSIDE T operator>>(T a, int n) { return a.v >> n; }

struct F { NUMBER(F, vector_f, float) INFIX(F, /) };
struct I { NUMBER(I, vector_i, int) WHOLE(I) };
struct U { NUMBER(U, vector_u, unsigned) WHOLE(U) };
/* Body of a function that computes its result lane by lane. */
#define LANES_OF(T, ...)                                                                                                              \
    {                                                                                                                                 \
        T out;                                                                                                                        \
        EACH_LANE out.v[lane] = __VA_ARGS__;                                                                                          \
        return out;                                                                                                                   \
    }
/* Division of indices */
FUNCTION I operator/(I a, int n) LANES_OF(I, a.v[lane] / n)
FUNCTION I operator%(I a, int n) LANES_OF(I, a.v[lane] % n)

/* Vector type of several runs for the type of one number */
template <class T> struct Wide { typedef T type; };
#define WIDE(T, number) template <> struct Wide<number> { typedef T type; };
WIDE(F, float) WIDE(B, bool) WIDE(I, int) WIDE(I, signed char) WIDE(I, short)
WIDE(U, unsigned) WIDE(U, unsigned char) WIDE(U, unsigned short)

#define CHOICE(T, number, kind)                                                                                                       \
    FUNCTION T choose_##kind(B c, T a, T b) { return c.v ? a.v : b.v; }                                                               \
    FUNCTION T choose_##kind(bool c, T a, T b) { return c ? a : b; }                                                                  \
    FUNCTION T choose(B c, T a, T b) { return c.v ? a.v : b.v; }                                                                      \
    FUNCTION number first_lane(T a) { return a.v[0]; }
CHOICE(F, float, f) CHOICE(I, int, i) CHOICE(U, unsigned, u)
FUNCTION B choose_b(B c, B a, B b) { return (c.v & a.v) | (~c.v & b.v); }
FUNCTION B choose_b(bool c, B a, B b) { return c ? a : b; }
FUNCTION B choose(B c, B a, B b) { return choose_b(c, a, b); }
FUNCTION bool first_lane(B a) { return a.v[0]; }
template <class T> FUNCTION T first_lane(T a) { return a; }

FUNCTION bool any(bool c) { return c; }
FUNCTION bool any(B c) {
#if defined(AVX512) && defined(__clang__)
    return __builtin_ia32_cmpd512_mask(c.v, (vector_i){}, 4, (unsigned short)-1);
#elif defined(AVX512)
    return __builtin_ia32_ptestmd512(c.v, c.v, (unsigned short)-1);
#elif defined(AVX2)
    return __builtin_ia32_movmskps256((vector_f)c.v);
#else
    int all = 0;
    EACH_LANE all |= c.v[lane];
    return all;
#endif
}
FUNCTION int largest(int x, B) { return x; }
FUNCTION int largest(I x, B among) {
    const I low = choose_i(among, x, -2147483647 - 1);
    int most = low.v[0];
    EACH_LANE most = low.v[lane] > most ? low.v[lane] : most;
    return most;
}

/* Number in the form in which a lane holds it */
template <class N> FUNCTION N in_lane(N x) { return x; }
FUNCTION int in_lane(bool x) { return -(int)x; }

/* Elements of a shared array, at an index of each run */
template <class N> FUNCTION typename Wide<N>::type gathered(const N *from, I at)
    LANES_OF(typename Wide<N>::type, in_lane(from[at.v[lane]]))

/* Transposition of LANES rows of numbers to vectors, in squares: each step zips the two halves of the vectors. */
FUNCTION void zipped(const vector_f *x, vector_f *y) {
    vector_i low, high;
    EACH_LANE low[lane] = lane / 2 + lane % 2 * LANES, high[lane] = low[lane] + LANES / 2;
    UNROLLED for (int i = 0; i < LANES / 2; ++i) {
#ifdef __clang__
        EACH_LANE {
            y[2 * i][lane] = x[i + lane % 2 * (LANES / 2)][lane / 2];
            y[2 * i + 1][lane] = x[i + lane % 2 * (LANES / 2)][lane / 2 + LANES / 2];
        }
#else
        y[2 * i] = __builtin_shuffle(x[i], x[i + LANES / 2], low);
        y[2 * i + 1] = __builtin_shuffle(x[i], x[i + LANES / 2], high);
#endif
    }
}
FUNCTION void turned(vector_f *x) {
    vector_f y[LANES];
    for (int step = LANES; step > 1; step /= 4) {
        zipped(x, y);
        if (step > 2) zipped(y, x);
        else memcpy(x, y, sizeof(y));
    }
}
#ifdef __clang__
#define WELL_COMPILED __attribute__((noinline))
#else
#define WELL_COMPILED __attribute__((noinline, optimize("O3")))
#endif
static WELL_COMPILED void rows_turned(F *to, const float *const *from, int width) {
    int first = 0;
    for (; first + LANES <= width; first += LANES) {
        vector_f x[LANES];
        UNROLLED LANE_BY_LANE memcpy(&x[lane], from[lane] + first, sizeof(vector_f));
        turned(x);
        UNROLLED LANE_BY_LANE to[first + lane].v = x[lane];
    }
    for (; first < width; ++first) EACH_LANE to[first].v[lane] = from[lane][first];
}

static WELL_COMPILED bool nan_among(const float *x, int size) {
    vector_i odd = {};
    int first = 0;
    for (; first + LANES <= size; first += LANES) {
        vector_f now;
        memcpy(&now, x + first, sizeof(now));
        odd |= (vector_i)(now != now);
    }
    bool found = any(B(odd));
    for (; first < size; ++first) found |= x[first] != x[first];
    return found;
}
/* Transposition of vectors to rows, written in the selected runs */
static WELL_COMPILED void rows_written(float *const *to, const F *from, int width, B meant) {
    int first = 0;
    for (; first + LANES <= width; first += LANES) {
        vector_f x[LANES];
        UNROLLED LANE_BY_LANE x[lane] = from[first + lane].v;
        turned(x);
        UNROLLED LANE_BY_LANE if (meant.v[lane]) memcpy(to[lane] + first, &x[lane], sizeof(vector_f));
    }
    for (; first < width; ++first) EACH_LANE if (meant.v[lane]) to[lane][first] = from[first].v[lane];
}

/* Row of a shared table, at an index of each run */
template <int WIDTH> FUNCTION void rows_of(F *to, const float *table, I row) {
    const float *from[LANES];
    EACH_LANE from[lane] = table + row.v[lane] * WIDTH;
    rows_turned(to, from, WIDTH);
}
template <int WIDTH> FUNCTION void rows_of(F *to, const float *table, int row) {
    for (int i = 0; i < WIDTH; ++i) to[i] = table[row * WIDTH + i];
}

/* Element of an array at an index of each run: the distance in memory is `step` between elements, and `run_step` between runs. */
template <class T> struct Spot {
    int *const first;
    const int step, run_step;
    const I at;
    INSIDE int &of(int lane) const { return first[at.v[lane] * step + lane * run_step]; }
    INSIDE operator T() const {
        vector_i bits;
#ifdef AVX512
        const vector_i runs = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        bits = __builtin_ia32_gathersiv16si((vector_i){} - 1, first, at.v * step + runs * run_step, (unsigned short)-1, 4);
#else
        EACH_LANE bits[lane] = of(lane);
#endif
        return (decltype(T::v))bits;
    }
    INSIDE void operator=(T x) const { EACH_LANE of(lane) = ((vector_i)x.v)[lane]; }
    INSIDE void operator=(const Spot &other) const { *this = (T)other; }
};
#define OF_SPOT(o) template <class T> FUNCTION T operator o(Spot<T> a, T b) { return (T)a o b; }
OF_SPOT(+) OF_SPOT(*) OF_SPOT(-)

template <class T, int N> struct Array {
    T a[N];
    INSIDE T &operator[](int i) { return a[i]; }
    INSIDE const T &operator[](int i) const { return a[i]; }
    INSIDE auto operator[](I i) {
        if constexpr (sizeof(T) == sizeof(vector_i)) return Spot<T>{(int *)a, LANES, 1, i};
        else return gathered(a, i);
    }
    INSIDE auto operator[](I i) const { return gathered(a, i); }
    INSIDE auto operator[](U i) { return (*this)[I((vector_i)i.v)]; }
    INSIDE auto operator[](U i) const { return gathered(a, I((vector_i)i.v)); }
};

/* Array in which the elements of each run are contiguous */
template <class T, int SIZE> struct PerRun {
    typedef typename Wide<T>::type W;
    T a[LANES][SIZE];
    INSIDE Spot<W> operator[](I i) { return {(int *)a, 1, SIZE, i}; }
    INSIDE W read(I i) { return (*this)[i]; }
    template <int WIDTH> INSIDE void rows(W *to, I row) const {
        const float *from[LANES];
        EACH_LANE from[lane] = (const float *)&a[lane][row.v[lane] * WIDTH];
        rows_turned((F *)to, from, WIDTH);
    }
    template <int WIDTH> INSIDE void write_rows(const W *from, I row, B meant) {
        float *to[LANES];
        EACH_LANE to[lane] = (float *)&a[lane][row.v[lane] * WIDTH];
        rows_written(to, (const F *)from, WIDTH, meant);
    }
    INSIDE B has_nan() const LANES_OF(B, in_lane(nan_among(a[lane], SIZE)))
};

/* Assignment in the runs where a condition holds */
template <class T, class V> FUNCTION void set_if(B c, T &x, V y) { x = choose(c, (T)y, x); }
template <class T, class V> FUNCTION void set_if(B c, const Spot<T> &x, V y) {
    const T all = y;
    EACH_LANE if (c.v[lane]) x.of(lane) = ((vector_i)all.v)[lane];
}
template <class X, class V> FUNCTION void set_if(bool c, X &&x, V y) { if (c) x = y; }
#undef SET_IF
#undef ANY
#define ANY(c) any(c)
#define SET_IF(c, x, ...) set_if(c, x, __VA_ARGS__)

/* Memory of XLA: element i of run r is at i * R + r. The last group of runs may be shorter than LANES. */
template <class T> struct Given {
    typedef typename Wide<T>::type W;
    const T *from;
    long long R, count;
    INSIDE W operator[](int i) const {
        W out;
        const T *const here = from + i * R;
        if (count >= LANES) EACH_LANE out.v[lane] = in_lane(here[lane]);
        else EACH_LANE out.v[lane] = in_lane(here[lane < count ? lane : count - 1]);
        return out;
    }
    INSIDE W operator[](I i) const LANES_OF(W, in_lane(from[i.v[lane] * R + (lane < count ? lane : count - 1)]))
    INSIDE W operator[](U i) const { return (*this)[I((vector_i)i.v)]; }
};
template <class T> struct Shared {
    const T *from;
    INSIDE const T &operator[](int i) const { return from[i]; }
    INSIDE typename Wide<T>::type operator[](I i) const { return gathered(from, i); }
    INSIDE typename Wide<T>::type operator[](U i) const { return gathered(from, I((vector_i)i.v)); }
};
template <class T> struct Made {
    T *to;
    long long R, count;
    INSIDE void put(long long i, typename Wide<T>::type x) const {
        T *const here = to + i * R;
        if (count >= LANES) EACH_LANE here[lane] = (T)x.v[lane];
        else for (int lane = 0; lane < count; ++lane) here[lane] = (T)x.v[lane];
    }
};

/* Conversions */
FUNCTION F to_f(F x) { return x; }
FUNCTION F to_f(I x) { return __builtin_convertvector(x.v, vector_f); }
FUNCTION F to_f(U x) { return __builtin_convertvector(x.v, vector_f); }
FUNCTION F to_f(B x) { return (vector_f)(x.v & (vector_i)(1.0f - (vector_f){})); }
FUNCTION I to_i(I x) { return x; }
FUNCTION I to_i(U x) { return (vector_i)x.v; }
FUNCTION I to_i(B x) { return x.v & 1; }
FUNCTION U to_u(U x) { return x; }
FUNCTION U to_u(I x) { return (vector_u)x.v; }
FUNCTION U to_u(B x) { return (vector_u)(x.v & 1); }
template <class T> FUNCTION float to_f(T x) { return (float)x; }
template <class T> FUNCTION int to_i(T x) { return (int)x; }
template <class T> FUNCTION unsigned to_u(T x) { return (unsigned)x; }
/* Integers of fewer bits are held in 32 bits. */
#define NARROW(kind, bits, T, S, number)                                                                                              \
    FUNCTION T to_##kind##bits(T x) { return T((x << (32 - bits)) >> (32 - bits)); }                                                  \
    FUNCTION T to_##kind##bits(S x) { return to_##kind##bits(to_##kind(x)); }                                                         \
    FUNCTION T to_##kind##bits(B x) { return to_##kind(x); }                                                                          \
    template <class N> FUNCTION number to_##kind##bits(N x) { return (number)x; }
NARROW(i, 8, I, U, signed char) NARROW(i, 16, I, U, short) NARROW(u, 8, U, I, unsigned char)
NARROW(u, 16, U, I, unsigned short)
FUNCTION U bits_of(F x) { return (vector_u)x.v; }
FUNCTION F float_of(U x) { return (vector_f)x.v; }
FUNCTION F float_of(I x) { return (vector_f)x.v; }

/* Result that is computed once: GCC would repeat a division under the mask of each choice that reads it. */
FUNCTION F once(F x) {
#ifdef AVX512
    asm("" : "+v"(x.v));
#endif
    return x;
}
FUNCTION F sqrtf(F x) {
    F out;
#if __has_builtin(__builtin_elementwise_sqrt)
    out.v = __builtin_elementwise_sqrt(x.v);
#elif defined(AVX512) && defined(__clang__)
    out.v = __builtin_ia32_sqrtps512(x.v, 4);
#elif defined(AVX512)
    out.v = __builtin_ia32_sqrtps512_mask(x.v, x.v, (unsigned short)-1, 4);
#elif defined(AVX2)
    out.v = __builtin_ia32_sqrtps256(x.v);
#else
    EACH_LANE out.v[lane] = sqrtf(x.v[lane]);
#endif
    return once(out);
}
FUNCTION F floorf(F x) {
    F out;
#ifdef AVX512
    out.v = __builtin_ia32_rndscaleps_mask(x.v, 1, x.v, (unsigned short)-1, 4);
#elif defined(AVX2)
    out.v = __builtin_ia32_roundps256(x.v, 1);
#else
    EACH_LANE out.v[lane] = floorf(x.v[lane]);
#endif
    return out;
}
/* Functions of one run, lane by lane */
#define BY_LANE_1(T, S, name) FUNCTION T name(S x) LANES_OF(T, name(x.v[lane]))
#define BY_LANE_2(T, S, name) FUNCTION T name(S x, S y) LANES_OF(T, name(x.v[lane], y.v[lane]))
BY_LANE_1(I, I, popcount_32) BY_LANE_1(U, U, popcount_32) BY_LANE_1(I, I, clz_32) BY_LANE_1(U, U, clz_32)
BY_LANE_2(I, I, div_i) BY_LANE_2(I, I, rem_i) BY_LANE_2(U, U, div_u) BY_LANE_2(U, U, rem_u) BY_LANE_1(F, F, ceilf)
BY_LANE_1(F, F, rintf) BY_LANE_1(F, F, roundf) BY_LANE_2(F, F, nextafterf) BY_LANE_2(F, F, fmodf)

/* Integers */
FUNCTION I add_i(I a, I b) { return a + b; }
FUNCTION I sub_i(I a, I b) { return a - b; }
FUNCTION I mul_i(I a, I b) { return a * b; }
FUNCTION U shl_u(U a, unsigned n) { return n < 32 ? a << (int)n : U(0u); }
FUNCTION U shr_u(U a, unsigned n) { return n < 32 ? a >> (int)n : U(0u); }
FUNCTION I sar_i(I a, int n) { return a >> ((unsigned)n < 32 ? n : 31); }
BY_LANE_2(U, U, shl_u) BY_LANE_2(U, U, shr_u) BY_LANE_2(I, I, shl_i) BY_LANE_2(I, I, shr_i)
FUNCTION int sar_i(int a, int n) { return sar_i(a, (unsigned)n); }
BY_LANE_2(I, I, sar_i)
FUNCTION I max_i(I a, I b) { return choose_i(a > b, a, b); }
FUNCTION I min_i(I a, I b) { return choose_i(a < b, a, b); }
FUNCTION U max_u(U a, U b) { return choose_u(a > b, a, b); }
FUNCTION U min_u(U a, U b) { return choose_u(a < b, a, b); }
FUNCTION I abs_i(I a) { return choose_i(a < 0, -a, a); }
FUNCTION I sign_i(I a) { return to_i(a > 0) - to_i(a < 0); }

/* Floats */
FUNCTION F max_f(F a, F b) { return choose_f(a != a, a, choose_f(a > b, a, b)); }
FUNCTION F min_f(F a, F b) { return choose_f(a != a, a, choose_f(a < b, a, b)); }
FUNCTION F sign_f(F x) { return choose_f(x > 0.0f, 1.0f, choose_f(x < 0.0f, -1.0f, x)); }
FUNCTION F fabsf(F x) { return (vector_f)((vector_i)x.v & 0x7fffffff); }
FUNCTION F div_f(F a, F b) { return once(a / b); }
FUNCTION B is_finite_f(F x) { return fabsf(x) < INF_32; }
FUNCTION I int_of(F x) {
    const I whole = __builtin_convertvector(x.v, vector_i);
    const I odd = choose_i(x != x, 0, choose_i(x > 0.0f, 2147483647, -2147483647 - 1));
    return choose_i((x >= -2147483648.0f) & (x < 2147483648.0f), whole, odd);
}
BY_LANE_1(U, F, unsigned_of)
FUNCTION I order_of(F x) { return I((vector_i)x.v) ^ ((I((vector_i)x.v) >> 31) & 0x7fffffff); }
THREEFRY(U)
