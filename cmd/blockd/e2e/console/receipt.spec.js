// The page of refused people, in all its states, as a person with a phone or a screen reader meets it.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, mail, open, test, view } from './visit.js';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const door = process.env.BLOCKD_RECEIPTS;
const folder = process.env.BLOCKD_TEST_SCREENSHOTS;

const refused = async (sender) => /\(ref ([0-9a-z]{16})\)$/.exec(await mail(sender))[1];

/** check looks at the page as it stands in both themes, on a phone and on a desk. */
async function check(person, state) {
  for (const colorScheme of ['light', 'dark']) {
    for (const [width, height] of [[360, 640], [1060, 800]]) {
      await person.emulateMedia({ colorScheme });
      await person.setViewportSize({ width, height });
      const faults = await person.evaluate(`${axe}; axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html)]))`);
      expect(faults, `${state}, ${colorScheme}, ${width}`).toEqual([]);
      expect(await person.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
    }
  }
  expect(await person.locator('script, img, link[rel=stylesheet], iframe').count()).toBe(0);
}

test('has no fault that axe knows, in any state', async ({ page, context }) => {
  test.skip(Boolean(folder), 'pictures are taken alone');
  const person = await context.newPage();
  const refs = [];
  for (const name of ['carla', 'dora']) refs.push(await refused(`${name}@listed.example`));
  const go = async (ref) => person.goto(`${door}/r/${ref}`);
  await go(refs[0]);
  await expect(person.getByText('The list “own” names your address')).toBeVisible();
  await expect(person.getByRole('link', { name: 'https://own.list.example/' })).toBeVisible();
  await expect(person.getByRole('link', { name: 'mailto:complaints@list.example' })).toBeVisible();
  await expect(person.getByText('carla')).toHaveCount(0);
  await check(person, 'not asked');
  await person.getByRole('button', { name: 'Ask for release' }).focus();
  await person.keyboard.press('Enter'); // by keyboard alone
  await expect(person.getByRole('status')).toContainText('Your request waits for a person.');
  await check(person, 'asked');
  await go(refs[1]);
  await person.getByRole('button', { name: 'Ask for release' }).click();
  await expect(person.getByRole('status')).toBeVisible();
  await open(page);
  await view(page, 'Requests');
  const requests = page.getByRole('region', { name: 'Refused people who ask to be let in' });
  await expect(requests.getByRole('row').filter({ hasText: 'carla@listed.example' })).toContainText('none: anybody may have written the address');
  await requests.getByRole('button', { name: 'Let in carla@listed.example' }).click();
  await expect(page.locator('#done')).toContainText('No proof is asked for, so whoever writes this address may.');
  await requests.getByRole('button', { name: 'Decline dora@listed.example' }).click();
  await expect(requests.getByRole('row').filter({ hasText: 'dora@listed.example' })).toHaveCount(0);
  await go(refs[0]);
  await expect(person.getByRole('status')).toContainText('Your request was granted.');
  await check(person, 'granted');
  await go(refs[1]);
  await expect(person.getByRole('status')).toHaveText('Your request was declined.');
  await check(person, 'declined');
  for (let asked = 0; ; asked += 1) { // a network has five a day; other tests have asked too
    expect(asked).toBeLessThan(6);
    await go(await refused(`more${asked}@listed.example`));
    const answer = person.waitForResponse((response) => response.request().method() === 'POST');
    await person.getByRole('button', { name: 'Ask for release' }).click();
    if ((await answer).status() === 429) break;
  }
  await expect(person.getByText('There are too many requests today.')).toBeVisible();
  await check(person, 'limit reached');
  await go('0123456789abcdef');
  await expect(person.getByRole('heading', { level: 1 })).toHaveText('No such receipt');
  await check(person, 'unknown');
});

for (const language of ['en', 'de', 'fr', 'es', 'zh']) {
  test(`speaks ${language}`, async ({ browser }) => {
    test.skip(Boolean(folder), 'pictures are taken alone');
    const person = await browser.newPage({ locale: language, viewport: { width: 360, height: 640 } });
    await person.goto(`${door}/r/${await refused(`${language}@listed.example`)}`);
    await expect(person.locator('html')).toHaveAttribute('lang', language);
    await check(person, language);
    await person.close();
  });
}

// The pictures of docs/receipts.md: go test ./cmd/blockd/e2e/console -run Console -update
for (const [name, colorScheme, width, height] of [['light', 'light', 900, 860], ['dark', 'dark', 900, 860], ['phone', 'light', 390, 844], ['phone-dark', 'dark', 390, 844]]) {
  test(`takes screenshots of the receipt, ${name}`, async ({ browser }) => {
    test.skip(!folder, 'pictures are taken with -update');
    const person = await browser.newPage({ colorScheme, viewport: { width, height } });
    await person.goto(`${door}/r/${await refused(`ann-${name}@listed.example`)}`);
    await person.screenshot({ path: `${folder}/receipt-${name}.png` });
    await person.close();
  });
}
