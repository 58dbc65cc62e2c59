// The past: numbers, charts that can be read without seeing them, and what there was most of.

import { expect, open, test, view } from './visit.js';

// counts answers as the daemon does, with numbers that can be foretold: bar i of the first list has i.
function counts(url) {
  const asked = new URL(url).searchParams;
  const [bars, step] = { '1h': [60, 60], '24h': [144, 600], '7d': [168, 3600], '30d': [120, 21600] }[asked.get('span')];
  const until = Math.floor(Date.now() / 1000 / step + 1) * step;
  const from = until - bars * step;
  const line = (factor) => Array.from({ length: bars }, (_, i) => i * factor);
  const names = { list: asked.get('outcome') === 'defer' ? [] : ['own', 'other', 'a', 'b', 'c', 'd', 'e', 'f'], checks: ['smtp', 'dns'], shadow: [], overruled: ['<b>own</b>'] }[asked.get('by')];
  return { by: asked.get('by'), span: asked.get('span'), from: new Date(from * 1000).toISOString(), until: new Date(until * 1000).toISOString(), step,
    since: new Date((from + 10 * step) * 1000).toISOString(), filling: false, series: names.map((name, k) => ({ name, counts: line(names.length - k) })) };
}

async function visit(page, to = '/#overview') {
  await open(page);
  await page.route('**/v1/series?*', (route) => route.fulfill({ json: counts(route.request().url()) }));
  await view(page, 'Lists');
  await page.goto(to);
}

const chart = (page, name) => page.getByRole('region', { name: new RegExp(`^${name} by`) });

test('gives the numbers of a chart by pointer, keys and table', async ({ page }) => {
  await visit(page);
  const refused = chart(page, 'Refused');
  const slider = refused.getByRole('slider');
  await slider.focus();
  await expect(slider).toHaveAttribute('aria-valuetext', /^\d+ [A-Z][a-z]+, \d\d:\d0–\d\d:\d0: own 1,144, other 1,001, a 858, .*3 others 858, so far$/);
  await page.keyboard.press('ArrowLeft');
  await expect(slider).toHaveAttribute('aria-valuetext', /own 1,136, other 994,/);
  await expect(refused.locator('.readout')).toContainText('own 1,136');
  await page.keyboard.press('Home');
  await expect(slider).toHaveAttribute('aria-valuetext', /: not counted$/); // before there were counts there is no zero
  await page.keyboard.press('Tab');
  await expect(refused.locator('.readout')).toHaveText('');
  await slider.hover();
  await expect(refused.locator('.readout')).toContainText(/own \d+/);
  await refused.getByRole('button', { name: 'Table' }).click();
  await expect(refused.getByRole('columnheader')).toHaveText(['Time', 'own', 'other', 'a', 'b', 'c', '3 others', 'All']);
  await expect(refused.getByRole('row').nth(2)).toContainText('1,136');
  await expect(chart(page, 'Overruled').locator('.key')).toContainText('<b>own</b>');
  await expect(chart(page, 'Deferred')).toContainText('No mail was deferred in the last 24 h.');
  await expect(page.locator('#numbers')).toContainText(/Refused\s*370,656/);
});

test('draws an hour, a day, a week and a month', async ({ page }) => {
  await visit(page);
  for (const [words, time, first] of [['1 h', '1h', 60], ['7 d', '7d', 168], ['30 d', '30d', 120], ['24 h', '24h', 144]]) {
    await page.getByRole('link', { name: words, exact: true }).click();
    await expect(page).toHaveURL(new RegExp(`#overview\\?time=${time}$`));
    await expect(chart(page, 'Refused').getByRole('slider')).toHaveAttribute('aria-valuemax', String(first - 1));
  }
  await page.goBack();
  await expect(chart(page, 'Refused').getByRole('slider')).toHaveAttribute('aria-valuemax', '119');
  await page.getByRole('link', { name: /^Refused/ }).click();
  await expect(page).toHaveURL(/#decisions\?time=30d&show=all&outcome=refuse$/);
});

test('says of counts that there are none yet, and that they cannot be had', async ({ page }) => {
  await open(page);
  await page.route('**/v1/series?*', (route) => route.fulfill({ json: { ...counts(route.request().url()), since: null, series: [] } }));
  await view(page, 'Lists');
  await page.goto('/#overview');
  await expect(page.getByRole('region', { name: 'What to do next' })).toContainText('No mail has been checked yet.');
  await expect(page.locator('#numbers')).toBeEmpty();
  await page.getByRole('link', { name: 'Ask.' }).click();
  await expect(page.getByRole('searchbox', { name: /^Sender, domain/ })).toBeFocused();
  await page.route('**/v1/series?*', (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', json: { status: 503, detail: 'the disk is away' } }));
  await page.goto('/#overview?time=7d');
  await expect(page.locator('#charts .failed')).toContainText('the disk is away');
});

const top = (by) => ({ by, decisions: 1000, distinct: 12, without: 0, damaged: 0, top: [
  { name: { domain: 'bulk.example', sender: 'x@bulk.example', client: '192.0.2.7', recipient: 'user@here.example', list: 'own', entry: 'own bulk.example' }[by], decisions: 900, share: 0.9, list: 'own', entry: 'bulk.example' },
  { name: '<img src=x onerror=alert(1)>', decisions: 100, share: 0.1, list: 'other', entry: '<img src=x onerror=alert(1)>' }] });

test('leads from what there was most of to its decisions', async ({ page }) => {
  await open(page);
  let busy = 1; // others count
  await page.route('**/v1/top?*', (route) => (busy-- > 0 ? route.fulfill({ status: 429, contentType: 'application/problem+json', json: { status: 429, detail: 'others count' } })
    : route.fulfill({ json: top(new URL(route.request().url()).searchParams.get('by')) })));
  await view(page, 'Lists');
  await page.goto('/#overview?time=7d');
  const part = page.getByRole('region', { name: 'Top', exact: true });
  for (const [words, name, address] of [['Senders', 'x@bulk.example', /#decisions\?time=7d&sender=x%40bulk\.example$/], ['Clients', '192.0.2.7', /#decisions\?time=7d&client=192\.0\.2\.7$/],
    ['Recipients', 'user@here.example', /&recipient=user%40here\.example$/], ['Lists', 'own', /&list=own$/], ['Entries', 'bulk.example', /&list=own&entry=bulk\.example$/], ['Domains', 'bulk.example', /&domain=bulk\.example$/]]) {
    await part.getByRole('link', { name: words, exact: true }).click();
    const row = part.getByRole('row').nth(1);
    await expect(row.getByRole('link', { name, exact: true }).first()).toHaveAttribute('href', address);
    await expect(row).toContainText('90.0 %');
  }
  await expect(part).toContainText('<img src=x onerror=alert(1)>');
  await part.getByRole('button', { name: 'Block bulk.example…' }).click();
  await expect(page.getByLabel('Address, domain or network')).toHaveValue('bulk.example');
  await page.getByRole('button', { name: 'Cancel' }).click();
  for (const name of ['CSV', 'NDJSON']) await expect(part.getByRole('link', { name, exact: true })).toBeVisible();
});
