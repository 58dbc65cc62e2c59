// Long names never squeeze a column, numbers and short names stay in one piece, and nothing stands beside its card: on desks of three
// widths and on a phone.

import { expect, mail, open, test } from './visit.js';

test.skip(Boolean(process.env.BLOCKD_TEST_SCREENSHOTS), 'pictures are taken alone');
test.describe.configure({ timeout: 600_000 });

const long = 'bounces+anna.katharina.mustermann=here.example-0123456789abcdef0123456789abcdef@a-long-name.mailing.mx.listed.example';
const senders = ['info@here.example', long, `${'a'.repeat(64)}@second.example`, 'carol@xn--bcher-kva.example', ''];
const recipients = ['sales@here.example', 'anna.katharina.mustermann@a-longer-department.here.example', 'info@here.example'];
const clients = ['192.0.2.77', '2001:db8:1111:2222:3333:4444:5555:6666', '203.0.113.255'];
const outcomes = ['refuse', 'quarantine', 'accept'];

const decisions = () => senders.flatMap((sender) => recipients.map((recipient, i) => ({ time: new Date(Date.now() - 3 * 86_400_000).toISOString(), door: 'smtp', outcome: outcomes[i], verdict: 'blocked', sender, recipient, client: clients[i],
  generation: 'g', ref: '0123456789', list: i ? 'a-list-with-quite-a-long-name' : 'own', entry: 'mx.listed.example', file: '/etc/blockd/own.txt', line: 4711 })));

// what is wrong in the table of a part: texts that are broken and have not to be, and what is wider than its card.
const faults = (page, part) => page.locator(part).evaluate((node) => {
  const seen = (one) => one.checkVisibility() && one.textContent.trim() !== '';
  const lines = (one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return new Set([...range.getClientRects()].filter(({ width }) => width > 0).map(({ bottom }) => Math.round(bottom / 8))).size;
  };
  const all = [];
  for (const one of node.querySelectorAll(`td.number, ${innerWidth > 832 ? ':not(.pair .keep).keep' : '.stack .keep'}, .badge, time, td.act button`)) if (seen(one) && lines(one) > 1) all.push(`broken: ${one.textContent}`);
  for (const one of node.querySelectorAll('td.address code')) if (innerWidth > 832 && !one.closest('.pair') && seen(one) && one.textContent.length <= 18 && lines(one) > 1) all.push(`broken: ${one.textContent}`);
  for (const one of node.querySelectorAll('td.name strong')) if (seen(one) && one.getBoundingClientRect().width < 24 && one.textContent.length > 4) all.push(`squeezed: ${one.textContent}`);
  for (const table of node.querySelectorAll('table')) {
    const card = table.closest('.card, dialog').getBoundingClientRect();
    if (table.getBoundingClientRect().right > card.right) all.push(`beside its card: ${Math.round(table.getBoundingClientRect().right - card.right)} px`);
  }
  if (document.documentElement.scrollWidth > innerWidth) all.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  return all;
});

test('squeezes nothing', async ({ page }) => {
  for (const sender of senders) await mail(sender);
  await open(page);
  await page.route('**/v1/decisions?*', (route) => route.fulfill({ json: { decisions: decisions(), lists: [], more: false, damaged: 0 } }));
  await page.route('**/v1/top?*', (route) => route.fulfill({ json: { by: 'sender', decisions: 98_765_432, distinct: 1_234_567, without: 0, damaged: 0, top: senders.map((name, i) => ({ name, decisions: 12_345_678 >> i, share: 0.3 / (i + 1) })) } }));
  await page.route('**/v1/entries?*', (route) => route.fulfill({ json: { total: 1_000_000, entries: [...senders.filter(Boolean), '203.0.113.0/24', 'a-domain.example'].map((entry, i) => ({ entry, action: i % 2 ? 'allow' : 'block',
    why: 'phishing, ticket 4711, as the colleagues say', author: 'somebody with a long name', added: new Date().toISOString(), expires: new Date(Date.now() + 3e9).toISOString() })) } }));
  await page.route('**/v1/lists', async (route) => {
    const { 'if-none-match': known, ...headers } = route.request().headers();
    const table = await (await route.fetch({ headers })).json();
    table.worth.forEach((list, i) => Object.assign(list, { list: i === 1 ? 'a-list-with-quite-a-long-name' : list.list, entries: 12_345_678, unique: 9_876_543, hits: 123_456_789, sole: 12_345_678, last_hit: list.modified }));
    await route.fulfill({ json: table });
  });
  for (const width of [1440, 1280, 1024, 390]) {
    await page.setViewportSize({ width, height: 900 });
    for (const [hash, part, ready] of [['overview?top=sender', '#view-overview', '#top tbody tr'], ['decisions', '#view-decisions', '#decisions tbody tr'], ['decisions?time=24h&show=all', '#view-decisions', '#past tbody tr'],
      ['lists', '#view-lists', '#lists tbody tr'], ['lists/own', '#view-lists', '#list .card'], ['entries', '#view-entries', '#entries tbody tr'],
      ['changes', '#view-changes', '#changes tbody tr'], ['quarantine', '#view-quarantine', '#quarantine tbody tr, #quarantine .none']]) {
      await page.goto('about:blank');
      await page.goto(`/#${hash}`);
      await expect(page.locator(ready).first()).toBeVisible();
      await expect(page.locator('[aria-busy=true]')).toHaveCount(0);
      expect(await faults(page, part), `${hash} at ${width} px`).toEqual([]);
    }
  }
});
