// What the page may weigh, and how long it may take. The same holds for a daemon with a million live entries.

import { expect, mail, open, test } from './visit.js';

const KiB = 1024;

test.skip(Boolean(process.env.BLOCKD_TEST_SCREENSHOTS), 'pictures are taken alone');

// weight is what the page has loaded since it was opened: all octets that came, and those of scripts as they are run.
const weight = (page) => page.evaluate(() => {
  const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
  const sum = (of, member) => of.reduce((n, one) => n + one[member], 0);
  return { came: sum(all, 'transferSize'), script: sum(all.filter(({ name }) => name.endsWith('.js')), 'decodedBodySize') };
});

const shown = { overview: '#numbers', decisions: '#decisions', lists: '#lists tbody', entries: '#entries tbody', changes: '#changes' };

test('weighs little', async ({ page }) => {
  await mail('weight@listed.example'); // without any the overview has no numbers
  await open(page);
  for (const [view, part] of Object.entries(shown)) {
    await page.goto('about:blank');
    await page.goto(`/#${view}`);
    await expect(page.locator(part).first()).toBeVisible();
    await expect(page.locator('[aria-busy=true]')).toHaveCount(0);
    const { came, script } = await weight(page);
    console.log(`${view}: ${Math.round(came / KiB)} KiB came, ${Math.round(script / KiB)} KiB of script`);
    expect(script).toBeLessThanOrEqual(150 * KiB);
    expect(came).toBeLessThanOrEqual(300 * KiB);
  }
});

test.describe.configure({ timeout: 600_000 });

// The best attempt counts, and a busy machine has many: others are what it does beside.
const best = async (most, attempt) => {
  let least = Infinity;
  for (const end = Date.now() + 120_000; least > most && Date.now() < end;) least = Math.min(least, await attempt());
  return least;
};

test('shows something at once', async ({ page }) => {
  await open(page);
  const ms = await best(500, async () => {
    await page.goto('about:blank');
    await page.goto('/#overview');
    return page.evaluate(() => new Promise((settle) => new PerformanceObserver((list, observer) => {
      observer.disconnect();
      settle(list.getEntriesByName('first-contentful-paint')[0].startTime);
    }).observe({ type: 'paint', buffered: true })));
  });
  console.log(`first contentful paint: ${Math.round(ms)} ms`);
  expect(ms).toBeLessThanOrEqual(500);
});

test('shows entries and decisions within a second, however many there are', async ({ page }) => {
  await mail('weight@listed.example'); // there is one at least
  await open(page);
  for (const [to, part] of [['/#entries', '#entries tbody tr'], ['/#decisions?time=30d&show=all', '#past tbody tr']]) {
    const ms = await best(1000, async () => {
      await page.goto('about:blank');
      await page.goto(to, { waitUntil: 'commit' });
      await page.locator(part).first().waitFor();
      return page.evaluate(() => performance.now());
    });
    console.log(`${to}: ${Math.round(ms)} ms`);
    expect(ms).toBeLessThanOrEqual(1000);
  }
});
