// The rest is declared already; these names are a kernel's own to use without this header.
typedef __half half;
typedef __half2 half2;
