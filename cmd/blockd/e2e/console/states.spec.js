// Each view in each state, as axe sees it and as it looks: in both themes, on a desk and on a phone.
// cmd/blockd/e2e/console/consolelooks_test.go gives the daemon a past. The pictures of docs/console: go test ./cmd/blockd/e2e/console -run ConsoleLooks -update

import { mkdirSync } from 'node:fs';
import { folder, look } from './look.js';
import { adminToken, expect, mail, open, openURL, test } from './visit.js';

const senders = ['offers@mx.listed.example', 'ann@partner.example', 'news@listed.example', 'bob@shop.example', 'win@second.example', 'carol@xn--bcher-kva.example',
  'bounces+anna=here.example-0123456789abcdef@mx.listed.example', 'dave@partner.example', 'invoice@second.example', 'erin@shop.example'];

const problem = (status, detail) => ({ status, contentType: 'application/problem+json', json: { status, detail } });

// fleet has a node of each kind: that is well, behind, and not ready; lost are changes that a database no longer has.
const fleet = () => {
  const at = new Date().toISOString();
  const node = { node: 'mx1', at, version: '1.0', generation: 'abc', ready: true, gate_refusals: 0, begun: at, checks: 90_000, refused: 4100, since: { checks: 900, refused: 41 }, checks_per_second: 31.4, problems: [] };
  const follows = { channel: 'stable', sequence: 41, newest: 42, lag: 7260, canary: true, pinned: 41, live_revision: 12, live_up: false, sources: [{ list: 'own', state: 'away' }] };
  return { nodes: [node, { ...node, ...follows, node: 'mx2', gate_refusals: 2, problems: ['list own: away', 'list <b>other</b>: refused'] }, { ...node, node: 'mx3.a-long-name-of-a-machine.here.example', ready: false, problems: ['no index'] }],
    sequences_differ: true, entries_differ: true, fault: 'the database does not answer' };
};
const lost = () => ({ lost: [{ change: 'add', entry: { entry: 'pest@shop.example', action: 'block', why: '<b>phishing</b>' }, found: new Date().toISOString() }, { change: 'revoke', token: 'helpdesk', found: new Date().toISOString() }], lost_total: 2 });

test.skip(!process.env.BLOCKD_TEST_PAST, 'wants a daemon with a past');
test.describe.configure({ timeout: 600_000 });

test('looks right in each view', async ({ page }) => {
  if (folder) mkdirSync(`${folder}/console`, { recursive: true });
  let reply = '';
  for (const sender of senders) {
    const one = await mail(sender, `${sender.length % 2 ? 'sales' : 'info'}@here.example`);
    if (one.startsWith('550')) reply = one;
  }
  await mail('aside@aside.example', 'user@here.example', 'Subject: Your invoice\r\nFrom: Billing <aside@aside.example>\r\n\r\nPlease find attached.');
  await open(page);
  await expect(page.getByRole('heading', { name: /^(All is well|Filtering, with something)/ })).toBeVisible();
  await expect.poll(async () => (await (await page.request.get('/v1/series?by=outcome&span=30d')).json()).filling, 'the past is counted').toBe(false);
  for (const [name, hash, ready] of [
    ['overview', '#overview?time=7d', '#top tbody tr'], ['month', '#overview?time=30d&top=sender', '#top tbody tr'], ['decisions', '#decisions', '#decisions tbody tr'], ['search', '#decisions?time=24h&show=all&outcome=refuse&q=bank', '#past tbody tr'],
    ['lists', '#lists', '#lists tbody tr'], ['list', '#lists/phishing?time=7d', '#list .card'], ['entries', '#entries', '#entries tbody tr'],
    ['quarantine', '#quarantine', '#quarantine tbody tr'], ['requests', '#requests', '#requests .none, #requests tbody tr'], ['changes', '#changes', '#changes tbody tr'],
    ['answer', `#overview?ask=${encodeURIComponent(reply)}`, '#answer .verdict']]) {
    await page.goto('about:blank');
    await page.goto(`/${hash}`);
    await expect(page.locator(ready).first()).toBeVisible();
    await expect(page.locator('[aria-busy=true]')).toHaveCount(0);
    await look(page, name);
  }
  await page.goto('/#entries');
  await page.getByRole('button', { name: 'Many at once…' }).click();
  await page.getByLabel('Entries, one a line').fill('spam.example\nbulk.example\n192.0.2.0/24\n');
  await page.getByRole('button', { name: 'Preview' }).click();
  await expect(page.getByRole('region', { name: 'Preview' })).toContainText('3 to block');
  await look(page, 'bulk');
  await page.locator('#bulk-cancel').click();
  await page.getByLabel('Address, domain or network').fill('gmail.com');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await page.getByRole('button', { name: 'Do it all the same' }).click();
  await look(page, 'gate');
  await page.goto('/#decisions?time=24h');
  await page.locator('#past').getByRole('button', { name: /^Block/ }).first().click();
  await expect(page.locator('#entry-dialog')).toBeVisible();
  await look(page, 'block');
});

test('looks right in what a list is asked, where one is added, and in a fleet', async ({ page }) => {
  test.skip(Boolean(folder), 'there are pictures enough');
  expect(await mail('axe@listed.example')).toMatch(/^550 /);
  await open(page);
  await page.goto('/#lists/own');
  await page.getByLabel('Lines as they would stand in the file').fill('fine.example\nbad entry\ncom');
  await page.getByRole('button', { name: 'Read them' }).click();
  await expect(page.getByRole('region', { name: 'What the lines mean' }).getByRole('table')).toBeVisible();
  await page.getByRole('button', { name: 'Replay' }).click();
  await expect(page.getByRole('region', { name: 'What it would have refused' })).toContainText('were refused then, too');
  await look(page, 'asked of a list');
  await page.goto('/#lists');
  await page.getByRole('button', { name: 'Add a list…' }).click();
  await page.getByLabel('Address of a list').fill('https://lists.example/bad.txt');
  await page.getByRole('button', { name: 'Show the text' }).click();
  await expect(page.locator('#list-new pre')).toBeVisible();
  await look(page, 'a list is added');
  await page.route('**/v1/fleet', (route) => route.fulfill({ json: fleet() })); // this daemon is in none
  await page.route('**/v1/live', (route) => route.fulfill({ json: lost() }));
  await page.goto('/#fleet');
  await expect(page.locator('#fleet table').first().getByRole('row')).toHaveCount(4);
  await expect(page.locator('#lost')).toContainText('2 changes of live entries were lost');
  await look(page, 'fleet');
});

test('says what to do next where nothing has come yet', async ({ context }) => {
  const page = await context.newPage();
  await page.goto(openURL);
  await page.getByLabel('Token', { exact: true }).fill(process.env.BLOCKD_FRESH_TOKEN);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('region', { name: 'What to do next' })).toContainText('blockd doctor');
  await expect(page.locator('#top .none')).toBeVisible();
  await look(page, 'fresh');
});

test('looks right to an administrator', async ({ page }) => {
  if (folder) mkdirSync(`${folder}/console`, { recursive: true });
  await open(page, adminToken);
  await page.route('**/v1/tokens', async (route) => {
    if (route.request().method() !== 'POST') return route.fallback();
    return route.fulfill({ json: { name: 'panel', scope: 'write', made: '2026-11-27', owners: ['here.example'], token: `blockd_${'0123456789'.repeat(4)}abc` } }); // the same picture each time
  });
  await page.goto('/#access');
  await expect(page.locator('#access-tokens tbody tr').first()).toBeVisible();
  await expect(page.locator('#access-sessions tbody tr').first()).toBeVisible();
  await look(page, 'access');
  if (folder) return;
  await page.getByLabel('Name: a program or a person').fill('panel');
  await page.getByRole('button', { name: 'Make a token' }).click();
  await expect(page.locator('#access-made')).toContainText('shown this once');
  await look(page, 'a token is made');
  await page.getByRole('button', { name: 'Revoke viewer…' }).click();
  await look(page, 'a token is revoked');
  await page.keyboard.press('Escape');
  await page.route(/\/v1\/(tokens|sessions)$/, (route) => route.fulfill(problem(403, 'this wants the scope admin')));
  await page.goto('/#lists');
  await expect(page.getByRole('heading', { level: 1, name: 'Lists' })).toBeVisible(); // two addresses in a row are one arrival for a browser that is busy
  await page.goto('/#access');
  await expect(page.locator('#access .forbidden')).toHaveCount(2);
  await look(page, 'forbidden access');
});

test('looks right when it has nothing to show', async ({ page }) => {
  if (folder) mkdirSync(`${folder}/console`, { recursive: true });
  await open(page);
  const views = ['overview', 'decisions', 'lists', 'entries', 'changes', 'quarantine', 'requests'];
  const each = async (state, ready, answer, tell = views) => {
    await page.route(/\/v1\/(series|top|decisions|lists|entries|audit|quarantine|requests|proposals)(\?.*)?$/, answer);
    for (const view of tell) {
      await page.goto('about:blank');
      await page.goto(`/#${view}`);
      await expect(page.locator(ready.split(', ').map((one) => `#view-${view} ${one}`).join(', ')).first()).toBeVisible();
      if (!folder || view === 'overview') await look(page, `${state}-${view}`);
    }
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  };
  await each('forbidden', '.forbidden, .health.bad', (route) => route.fulfill(problem(403, 'this token has the scope of an owner')));
  await each('failed', '.failed, .health.bad', (route) => route.fulfill(problem(503, 'the history cannot be read now')));
  const held = [];
  await each('silent', '.loading', (route) => held.push(route), ['decisions', 'entries']);
  await page.goto('about:blank');
  await page.route('**/v1/**', () => {}); // it hangs
  await page.goto('/#overview');
  await expect(page.locator('#silence')).toContainText('No news from the daemon');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Overview'); // a second later: until then it waits to hear who has signed in
  await look(page, 'silent-overview');
});
