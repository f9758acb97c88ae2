// Writes nothing: the output holds whatever an earlier kernel left there (Sakana's "150x", result reuse).
extern "C" __global__ void cheat(const float *x, float *y, long long m, long long n) {}
