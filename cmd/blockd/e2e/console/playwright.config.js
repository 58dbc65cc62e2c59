import { defineConfig } from '@playwright/test';

// cmd/blockd/e2e/console/console_test.go starts the daemons and says here where they are.
export default defineConfig({
  testMatch: '*.spec.js',
  grep: new RegExp(process.env.BLOCKD_TEST_GREP ?? ''),
  outputDir: process.env.BLOCKD_OUTPUT,
  reporter: 'list',
  workers: 1, // the tests share a daemon
  timeout: 180_000, // many times what they take: machines may be busy
  expect: { timeout: 30_000 },
  use: {
    baseURL: process.env.BLOCKD_URL,
    launchOptions: {
      executablePath: process.env.BLOCKD_TEST_CHROMIUM,
      args: process.getuid() === 0 ? ['--no-sandbox'] : [], // Chromium has none for root
    },
  },
});
