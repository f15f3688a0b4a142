/** Benchmarks are the `.mjs` scripts beside this file; each runs by itself on the built packages. */
export {};
