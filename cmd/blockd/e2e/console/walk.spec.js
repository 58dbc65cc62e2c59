// The pictures of docs/walk.md: go test ./cmd/blockd/e2e/console -run Walk -update

import { readFileSync } from 'node:fs';
import { test, expect } from '@playwright/test';

const { BLOCKD_TEST_WALK: what, BLOCKD_TEST_RECEIPT: receipt, BLOCKD_TEST_SCREENSHOTS: folder, BLOCKD_DIR: dir } = process.env;

test.skip(!what, 'pictures are taken with -update');

test('takes a picture for the walk', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  if (what === 'receipt') {
    await page.setViewportSize({ width: 390, height: 720 });
    await page.goto(receipt);
    await page.screenshot({ path: `${folder}/walk-receipt.png` });
    return;
  }
  await page.setViewportSize({ width: 1060, height: 900 });
  await page.goto('/#lists');
  const row = page.getByRole('row').filter({ has: page.getByRole('button', { name: /^Adopt/ }) });
  await page.getByLabel('Token', { exact: true }).fill(readFileSync(`${dir}/var/blockd.bdx.token`, 'utf8').trim());
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await row.getByRole('button', { name: /^See/ }).click();
  await expect(page.getByText('partner.example').first()).toBeVisible();
  await page.evaluate((dir) => { // a folder that is not this run's
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(dir, '/etc/blockd');
  }, dir);
  await page.locator('#lists-title').evaluate((title) => title.scrollIntoView());
  await page.screenshot({ path: `${folder}/walk-review.png` });
});
