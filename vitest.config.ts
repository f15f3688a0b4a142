import { defineConfig } from 'vitest/config';

/** Tests that boot microVMs: one file at a time, for two cores are all that some machines have. */
const realVm = ['**/*.vm.test.ts', 'tests/e2e/**/*.test.ts'];
const never = ['**/node_modules/**', '**/dist/**'];

export default defineConfig({
  test: {
    globalSetup: ['packages/testing/src/global-setup.ts'],
    // What is waited for comes in milliseconds, or not at all; a machine that is busy takes its time.
    expect: { poll: { timeout: 20_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['{apps,packages,bench}/**/*.test.ts', 'scripts/**/*.test.mjs'],
          exclude: [...never, ...realVm],
          testTimeout: 60_000,
        },
      },
      {
        extends: true,
        test: {
          name: 'vm',
          include: realVm,
          exclude: never,
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 300_000,
        },
      },
    ],
  },
});
