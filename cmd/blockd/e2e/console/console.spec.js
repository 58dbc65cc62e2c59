// What a person does with the console.

import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Resolver } from 'node:dns/promises';
import { createServer } from 'node:http';
import { dir, expect, mail, open, openURL, readToken, test, token, url, view } from './visit.js';

const ask = (page) => page.getByRole('searchbox', { name: /^Sender, domain/ });
const answer = (page) => page.getByRole('region', { name: 'Answer' });
const done = (page) => page.locator('#done');
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

function replace(name, text) {
  writeFileSync(`${dir}/${name}.new`, text);
  renameSync(`${dir}/${name}.new`, `${dir}/${name}`);
}

test('finds out why a mail was refused, from the text of the bounce', async ({ page }) => {
  const reply = await mail('news@mx.listed.example');
  expect(reply).toMatch(/^550 5\.7\.1 .* listed in own \(ref [0-9a-z]{16}\)$/);
  await open(page);
  await ask(page).fill(reply);
  await expect(answer(page)).toContainText('refused');
  await expect(answer(page)).toContainText(/news@mx\.listed\.example\s*to\s*user@here\.example/);
  await expect(answer(page)).toContainText('from 127.0.0.1 (client.example)');
  await expect(answer(page)).toContainText(/Listed in own, line 1 of .*own\.txt: listed\.example and all names below it – our own/);
  await expect(answer(page)).toContainText('If it came now');
});

test('shows what programs are told apart from mail', async ({ page }) => {
  await open(page);
  const programs = new Resolver();
  programs.setServers([process.env.BLOCKD_DNS]);
  expect(await programs.resolve4('told.listed.example.dbl.dns.test')).toEqual(['127.0.0.2']);
  expect(await programs.resolve4('7.2.0.192.ip.dns.test')).toEqual(['127.0.0.2']);
  const decisions = page.locator('#decisions');
  await view(page, 'Decisions');
  await page.getByLabel('Show').selectOption('answers to programs');
  for (const subject of ['told.listed.example', '192.0.2.7']) {
    const row = decisions.getByRole('row').filter({ has: page.getByRole('button', { name: subject, exact: true }) });
    await expect(row).toContainText('a program, by dns');
    await expect(row).toContainText('listed in own');
  }
  await page.getByLabel('Show').selectOption('all mail');
  await expect(decisions).not.toContainText('told.listed.example');
  const held = [];
  await page.route(/v1\/decisions\?/, (route) => held.push(route));
  await page.reload();
  await expect.poll(() => held.length).toBeGreaterThan(0);
  await page.getByLabel('Show').selectOption('answers to programs'); // while the past is on its way
  await page.unroute(/v1\/decisions\?/);
  for (const route of held) await route.continue().catch(() => {}); // of which the page may have ended some
  await expect(decisions).toContainText('told.listed.example');
  await decisions.getByRole('button', { name: '192.0.2.7', exact: true }).click();
  await expect(answer(page)).toContainText('192.0.2.0/24 – our own'); // a network has no names below it
  await expect(answer(page).getByRole('heading', { name: 'What programs were told' })).toBeVisible();
});

test('explains while somebody types', async ({ page }) => {
  await open(page);
  await ask(page).pressSequentially('x@listed.example');
  await expect(answer(page)).toContainText('blocked');
  await answer(page).getByText('How this was found').click();
  await expect(answer(page).getByRole('row', { name: /^listed\.example/ })).toContainText('listed');
  await ask(page).fill('192.0.2.7');
  await expect(answer(page)).toContainText('192.0.2.0/24');
  await ask(page).fill('nobody.example');
  await expect(answer(page)).toContainText('On no list.');
  await ask(page).fill('a b@');
  await expect(answer(page)).toContainText('unknown');
});

test('blocks a sender at the SMTP door, undoes it, and does it again', async ({ page }) => {
  const sender = 'pest@shop.example';
  expect(await mail(sender)).toMatch(/^250 /);
  await open(page);
  await ask(page).fill(sender);
  await expect(answer(page)).toContainText('On no list.');
  await expect(answer(page)).toContainText('Mail from there');
  await answer(page).getByRole('button', { name: 'Block…' }).click();
  await page.locator('#entry-form').getByLabel('Why', { exact: true }).fill('phishing, ticket 4711');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await expect(done(page)).toContainText(`block ${sender} is in force.`);
  await expect(answer(page)).toContainText('blocked');
  expect(await mail(sender)).toMatch(/^550 5\.7\.1 .* listed in live /);
  await done(page).getByRole('button', { name: 'Undo' }).click();
  await expect(done(page)).toContainText('was removed.');
  await expect(answer(page)).toContainText('On no list.');
  expect(await mail(sender)).toMatch(/^250 /);
  await done(page).getByRole('button', { name: 'Undo' }).click(); // of the removal
  await view(page, 'Entries');
  await expect(page.getByRole('row', { name: /pest@shop\.example block phishing, ticket 4711 helpdesk/ })).toBeVisible();
  expect(await mail(sender)).toMatch(/^550 /);
  await page.getByRole('button', { name: `Remove ${sender}` }).first().click();
  await expect(done(page)).toContainText('was removed.');
  expect(await mail(sender)).toMatch(/^250 /);
});

test('unblocks a listed sender by an exception', async ({ page }) => {
  expect(await mail('partner@listed.example')).toMatch(/^550 /);
  await open(page);
  await ask(page).fill('partner@listed.example');
  await answer(page).getByRole('button', { name: 'Allow…' }).click();
  await page.keyboard.press('Enter');
  await expect(answer(page)).toContainText('allowed');
  expect(await mail('partner@listed.example')).toMatch(/^250 /);
  await answer(page).getByRole('button', { name: 'Remove partner@listed.example' }).click();
  await expect(answer(page)).toContainText('blocked');
  expect(await mail('partner@listed.example')).toMatch(/^550 /);
});

test('is told what the gate refuses, and can insist', async ({ page }) => {
  await open(page);
  await view(page, 'Entries');
  await page.getByLabel('Address, domain or network').fill('gmail.com');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await expect(page.locator('#entry-fault[role=alert]')).toContainText('protected domain gmail.com');
  expect(await mail('somebody@gmail.com')).toMatch(/^250 /);
  await page.getByRole('button', { name: 'Do it all the same' }).click();
  await expect(page.getByRole('button', { name: 'No', exact: true })).toBeFocused(); // a second Enter does no harm
  expect(await mail('somebody@gmail.com')).toMatch(/^250 /);
  await page.getByRole('button', { name: 'Yes, block gmail.com' }).click();
  await expect(done(page)).toContainText('block gmail.com is in force.');
  expect(await mail('somebody@gmail.com')).toMatch(/^550 /);
  await done(page).getByRole('button', { name: 'Undo' }).click();
  await expect(done(page)).toContainText('was removed.');
  expect(await mail('somebody@gmail.com')).toMatch(/^250 /);
});

test('sees a load that was refused, with its reason, and its cure', async ({ page }) => {
  await open(page);
  await expect(page.getByRole('heading', { name: 'All is well.' })).toBeVisible();
  replace('other.txt', '<!doctype html><title>503</title>');
  await expect(page.getByRole('heading', { name: 'Filtering, with one problem.' })).toBeVisible();
  await expect(page.locator('#health-problems')).toContainText(/list other: .*other\.txt: html: begins as a web page/);
  await view(page, 'Lists');
  await expect(page.getByRole('row', { name: /^other/ })).toContainText('refused');
  replace('other.txt', 'second.example\n');
  await view(page, 'Overview');
  await expect(page.getByRole('heading', { name: 'All is well.' })).toBeVisible();
});

test('sees how the sources of lists are', async ({ page }) => {
  await open(page);
  const source = { kind: 'postgres', mode: 'copy', state: 'ok', class: '', since: new Date().toISOString(), lag_seconds: 2, rows: 8_000_000, missed: 0, error: '' };
  const away = { ...source, kind: 'redis', state: 'away', class: 'unreachable', lag_seconds: 754, error: '<b>dial tcp</b>: connection refused' };
  await page.route('**/v1/lists', async (route) => {
    const table = await (await route.fetch()).json();
    table.worth.forEach((list) => { list.source = { own: source, other: away }[list.list] ?? null; });
    await route.fulfill({ json: table });
  });
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Filtering, with one problem.' })).toBeVisible();
  await expect(page.locator('#health-problems')).toContainText('list other: its source is away (unreachable): <b>dial tcp</b>: connection refused');
  await view(page, 'Lists');
  await expect(page.getByRole('columnheader', { name: 'Source' })).toBeVisible();
  await expect(page.getByRole('row', { name: /^own/ })).toContainText('ok postgres');
  await expect(page.getByRole('row', { name: /^other/ })).toContainText('away redis, unreachable, 12 min behind');
});

test('watches decisions as they are made', async ({ page }) => {
  await open(page);
  await view(page, 'Decisions');
  const rows = page.locator('#decisions tbody tr');
  await mail('first@listed.example');
  await expect(rows.first()).toContainText('first@listed.example');
  await expect(rows.first()).toContainText('refused');
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await mail('second@listed.example');
  await expect(page.getByRole('button', { name: 'Go on (1 new)' })).toBeVisible();
  await expect(rows.first()).toContainText('first@listed.example');
  await page.getByRole('button', { name: 'Go on (1 new)' }).click();
  await expect(rows.first()).toContainText('second@listed.example');
  await mail('third@clear.example');
  await page.getByLabel('Show').selectOption('all mail');
  await expect(rows.first()).toContainText('third@clear.example');
  await page.getByRole('button', { name: 'second@listed.example', exact: true }).click();
  await expect(ask(page)).toHaveValue('second@listed.example');
  await expect(answer(page)).toContainText('Mail from there');
  await view(page, 'Overview');
  await expect(page.locator('#traffic')).toContainText(/[1-9][0-9]* blocked/);
  await expect(page.locator('#hits')).toContainText('own');
});

test('keeps refusals in view while much other mail comes', async ({ page }) => {
  await open(page);
  const clear = (n) => ({ time: new Date(Date.now() - n).toISOString(), door: 'smtp', outcome: 'accept', verdict: 'clear', sender: `s${n}@clear.example`,
    recipient: 'user@here.example', generation: 'g' });
  const refused = (n) => ({ ...clear(n), outcome: 'refuse', verdict: 'blocked', sender: `pest${n}@listed.example`, ref: '0123456789', list: 'own', entry: 'listed.example' });
  const others = Array.from({ length: 150 }, (_, n) => clear(n));
  await page.route('**/v1/decisions?*', (route) => {
    const asked = new URL(route.request().url()).searchParams;
    const decisions = asked.get('verdict') === 'blocked' ? [refused(100_000)] : others.slice(0, asked.get('limit'));
    route.fulfill({ json: { decisions, more: true, damaged: 0 } });
  });
  await page.route('**/v1/events', (route) => route.fulfill({ contentType: 'text/event-stream',
    body: [refused(1000), ...others].map((decision) => `event: decision\ndata: ${JSON.stringify(decision)}\n\n`).join('') }));
  await page.reload();
  await view(page, 'Decisions');
  const rows = page.locator('#decisions tbody tr');
  await expect(rows).toContainText(['pest1000@listed.example', 'pest100000@listed.example']);
  await page.getByLabel('Show').selectOption('all mail');
  await expect(rows).toHaveCount(100);
  await expect(rows.first()).toContainText('@clear.example');
});

test('needs no mouse', async ({ page }) => {
  await page.goto('/');
  await expect(page.getByLabel('Token', { exact: true })).toBeFocused();
  await page.keyboard.type(token);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'All is well.' })).toBeVisible();
  await page.keyboard.press('/');
  await expect(ask(page)).toBeFocused();
  await page.keyboard.type('keys@shop.example');
  await expect(answer(page)).toContainText('On no list.');
  await page.keyboard.press('Tab');
  await expect(page.getByRole('button', { name: 'Block…' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('button', { name: 'Block', exact: true })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(done(page)).toContainText('block keys@shop.example is in force.');
  await expect(answer(page)).toContainText('blocked');
  for (let i = 0; i < 40 && !(await done(page).getByRole('button', { name: 'Undo' }).evaluate((node) => node === document.activeElement)); i++) {
    await page.keyboard.press('Tab');
  }
  await page.keyboard.press('Enter');
  await expect(done(page)).toContainText('was removed.');
  await expect(done(page).getByRole('button', { name: 'Undo' })).toBeFocused();
});

test('shows what strangers write as text', async ({ page }) => {
  const hostile = '"<img/src=x/onerror=alert(1)>"@listed.example';
  const reply = await mail(hostile);
  expect(reply).toMatch(/^550 /);
  await open(page);
  await view(page, 'Decisions');
  await expect(page.locator('#decisions')).toContainText(hostile);
  await ask(page).fill(`ref ${/ref (\w+)/.exec(reply)[1]}`);
  await expect(answer(page)).toContainText(hostile);
  await ask(page).fill('<script>alert(1)</script>@listed.example');
  await expect(answer(page)).toContainText('<script>alert(1)</script>@listed.example');
  await view(page, 'Entries');
  await page.getByLabel('Address, domain or network').fill('hostile@shop.example');
  await page.locator('#entry-form').getByLabel('Why', { exact: true }).fill('<img src=x onerror=alert(1)>');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await expect(page.locator('#entries')).toContainText('<img src=x onerror=alert(1)>');
  expect(await page.locator('main img, main script').count()).toBe(0);
  await done(page).getByRole('button', { name: 'Undo' }).click();
  await expect(done(page)).toContainText('was removed.');
});

test('lets mail out of quarantine, removes it, and renders nothing of it', async ({ page }) => {
  const quarantine = page.locator('#quarantine');
  const message = page.locator('#message-dialog');
  for (const subject of ['first', '<img src=x onerror=alert(1)>']) {
    expect(await mail('who@aside.example', 'user@here.example', `Subject: ${subject}\r\nFrom: "<b>\x1b[2J" <who@aside.example>\r\nContent-Type: text/html\r\n\r\n<script>alert(1)</script><img src=x onerror=alert(1)>`)).toMatch(/^250 /);
  }
  await open(page);
  await view(page, 'Quarantine');
  await expect(quarantine.locator('tbody tr')).toHaveCount(2);
  await expect(page.locator('#quarantine-fill')).toContainText('2 of at most');
  await quarantine.getByText('<img src=x onerror=alert(1)>').click();
  await expect(message).toContainText('<script>alert(1)</script><img src=x onerror=alert(1)>');
  await expect(message).toContainText('<b>\\u{1b}[2J');
  expect(await page.locator('main img, main script, dialog img, dialog script, dialog b').count()).toBe(0);
  await message.getByRole('button', { name: 'Release' }).click();
  await expect(done(page)).toContainText('Released to user@here.example.');
  await expect(quarantine.locator('tbody tr')).toHaveCount(1);
  await quarantine.getByRole('button', { name: 'Remove first' }).click();
  await expect(message).toContainText('Remove it for good?');
  await message.getByRole('button', { name: 'Remove' }).click();
  await expect(done(page)).toContainText('Removed.');
  await expect(quarantine).toContainText('Nothing is set aside.');
});

test('asks who may only read for another token before it shows mail', async ({ page }) => {
  expect(await mail('viewer@aside.example', 'user@here.example', 'Subject: private\r\n\r\nsecret')).toMatch(/^250 /);
  await open(page, readToken);
  await view(page, 'Quarantine');
  await page.locator('#quarantine').getByText('private').click();
  await expect(page.locator('#token-dialog')).toContainText('this token has the scope read');
  await page.getByLabel('Token', { exact: true }).fill(token);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.locator('#message-dialog')).toContainText('secret');
  await page.locator('#message-dialog').getByRole('button', { name: 'Remove' }).click();
  await expect(done(page)).toContainText('Removed.');
});

test('would not run what got into the page all the same', async ({ browser }) => {
  const page = await browser.newPage();
  await page.goto(url);
  const outcomes = await page.evaluate(async () => {
    const attempt = (what) => { try { what(); return 'done'; } catch { return 'refused'; } };
    const parsed = attempt(() => { document.querySelector('main').innerHTML = '<p>'; });
    const script = attempt(() => document.body.append(Object.assign(document.createElement('script'), { text: 'window.ran = true' })));
    const inline = document.createElement('button');
    const handler = attempt(() => { inline.setAttribute('onclick', 'window.ran = true'); inline.click(); });
    const elsewhere = await fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused');
    return [parsed, script, handler, elsewhere, window.ran];
  });
  expect(outcomes).toEqual(['refused', 'refused', 'refused', 'refused', undefined]);
  await page.close();
});

test('fits a phone', async ({ page }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  const long = `${'a'.repeat(64)}@${'b'.repeat(60)}.${'c'.repeat(60)}.listed.example`;
  await mail(long, `${'d'.repeat(64)}@here.example`);
  await open(page);
  await ask(page).fill(long);
  await expect(answer(page)).toContainText('Mail from there');
  await answer(page).getByText('How this was found').click();
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
  const controls = () => page.evaluate(() => [...document.querySelectorAll('button, input, select')].filter((one) => one.checkVisibility({ visibilityProperty: true }))
    .map((one) => [one.getBoundingClientRect().right, one.outerHTML])); // at one moment: new decisions come
  expect((await controls()).length).toBeGreaterThan(3);
  await expect.poll(async () => (await controls()).filter(([right]) => right > 360)).toEqual([]);
});

for (const colorScheme of ['light', 'dark']) {
  test(`has no fault that axe knows, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const faults = () => page.evaluate(`${axe}; axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html)]))`);
    await page.goto('/');
    await expect(page.getByLabel('Token', { exact: true })).toBeFocused();
    expect(await faults()).toEqual([]);
    await page.getByLabel('Token', { exact: true }).fill(token);
    await page.keyboard.press('Enter');
    await expect(page.locator('#token-dialog')).toBeHidden(); // nobody types behind it, and a question asked there has no session yet
    await expect(page.locator('#link')).toHaveText('live');
    await mail('axe@listed.example');
    await ask(page).fill('axe@listed.example');
    await expect(answer(page)).toContainText('Mail from there');
    await answer(page).getByText('How this was found').click();
    await view(page, 'Entries');
    await page.getByLabel('Address, domain or network').fill('com');
    await page.getByRole('button', { name: 'Block', exact: true }).click();
    await expect(page.locator('#entry-fault[role=alert]')).toContainText('public-suffix');
    expect(await faults()).toEqual([]);
    expect(await mail('axe@aside.example', 'user@here.example', 'Subject: axe\r\n\r\ntext')).toMatch(/^250 /);
    await view(page, 'Quarantine');
    await page.getByRole('button', { name: 'Look at: axe' }).click();
    await expect(page.locator('#message-dialog')).toContainText('text');
    expect(await faults()).toEqual([]);
    await page.locator('#message-dialog').getByRole('button', { name: 'Remove' }).click();
    await expect(done(page)).toContainText('Removed.');
    await done(page).getByRole('button', { name: 'Close this message' }).click();
    await view(page, 'Entries');
    await page.getByLabel('Address, domain or network').fill('axe@shop.example');
    await page.getByRole('button', { name: 'Allow', exact: true }).click();
    await expect(done(page)).toBeVisible();
    expect(await faults()).toEqual([]);
    await done(page).getByRole('button', { name: 'Undo' }).click();
    await expect(done(page)).toContainText('was removed.');
  });
}

// Somebody is refused, reads why, and asks; an operator lets in; the next mail arrives.
test('lets in who was refused and asks, and declines others', async ({ page, context }) => {
  const asked = async (sender, colorScheme, note) => {
    const [, ref] = /\(ref ([0-9a-z]{16})\)$/.exec(await mail(sender));
    const person = await context.newPage(); // an address of its own, which the visit's page may not ask
    await person.emulateMedia({ colorScheme });
    await person.setViewportSize({ width: 360, height: 640 });
    const faults = () => person.evaluate(`${axe}; axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html)]))`);
    await person.goto(`${process.env.BLOCKD_RECEIPTS}/r/${ref}`);
    await expect(person.getByRole('heading', { level: 1 })).toHaveText('Your message was refused');
    await expect(person.getByText('The list “own” names your address')).toBeVisible();
    expect(await faults()).toEqual([]);
    expect(await person.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
    await person.getByLabel('What should we know?').fill(note);
    await person.getByRole('button', { name: 'Ask for release' }).click();
    await expect(person.getByRole('status')).toContainText('Your request waits for a person.');
    expect(await faults()).toEqual([]);
    return person;
  };
  const anna = await asked('anna@listed.example', 'light', 'I teach\u202e at your <b>school</b>');
  const bert = await asked('bert@listed.example', 'dark', '');
  await open(page);
  await view(page, 'Requests');
  const requests = page.getByRole('region', { name: 'Refused people who ask to be let in' });
  const row = requests.getByRole('row').filter({ hasText: 'anna@listed.example' });
  await expect(row).toContainText('own: listed.example');
  await expect(row).toContainText('I teach at your <b>school</b>');
  await row.getByRole('button', { name: 'Let in anna@listed.example' }).click();
  await expect(done(page)).toContainText('anna@listed.example may write until');
  await expect(row).toHaveCount(0);
  expect(await mail('anna@listed.example')).toMatch(/^250 /);
  await anna.reload();
  await expect(anna.getByRole('status')).toContainText('Your request was granted. Send your message again; your mail passes until');
  await requests.getByRole('button', { name: 'Decline bert@listed.example' }).click();
  await expect(requests).toContainText('Nobody waits for an answer.');
  await bert.reload();
  await expect(bert.getByRole('status')).toHaveText('Your request was declined.');
  expect(await mail('bert@listed.example')).toMatch(/^550 /);
});

test('pauses a list, and resumes it', async ({ page }) => {
  expect(await mail('pause@listed.example')).toMatch(/^550 /);
  await open(page);
  await view(page, 'Lists');
  const row = page.getByRole('region', { name: 'Lists', exact: true }).getByRole('row').filter({ hasText: 'own' });
  await row.getByRole('button', { name: 'Pause 1 h own' }).click();
  await expect(row).toContainText('paused until');
  await view(page, 'Overview');
  await expect(page.getByText('list own is paused until')).toBeVisible();
  expect(await mail('pause@listed.example')).toMatch(/^250 /);
  await view(page, 'Changes');
  const changes = page.getByRole('region', { name: 'Who has changed what' });
  await expect(changes.getByRole('row').nth(1)).toContainText(/helpdesk\s*list paused\s*own\s*until/);
  await view(page, 'Lists');
  await row.getByRole('button', { name: 'Resume own' }).click();
  await expect(row).not.toContainText('paused');
  await view(page, 'Changes');
  await expect(changes.getByRole('row').nth(1)).toContainText(/helpdesk\s*list resumed\s*own/);
  await page.getByRole('button', { name: 'Older changes' }).click();
  await expect(changes).not.toContainText('list resumed');
  await page.getByRole('button', { name: 'Newer changes' }).click();
  await expect(changes.getByRole('row').nth(1)).toContainText('list resumed');
  expect(await mail('pause@listed.example')).toMatch(/^550 /);
});

test('keeps who has signed in across a reload and in another tab, in a cookie that no script reads, and signs out', async ({ page, context }) => {
  await open(page, readToken);
  await expect(page.locator('#who')).toHaveText('viewer (read)');
  const [cookie, ...others] = await context.cookies();
  expect(others).toEqual([]);
  expect(cookie).toMatchObject({ name: 'blockd-session', httpOnly: true, sameSite: 'Strict', path: '/', expires: -1 });
  expect(cookie.value).not.toContain(readToken);
  expect(await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie])).toEqual([0, 0, '']);
  await view(page, 'Entries');
  await page.getByLabel('Address, domain or network').fill('scope@shop.example');
  await page.getByRole('button', { name: 'Block', exact: true }).click();
  await expect(page.getByRole('dialog')).toContainText('this token has the scope read');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.locator('#entry-fault[role=alert]')).toContainText('this token has the scope read');
  expect(await mail('scope@shop.example')).toMatch(/^250 /);
  const other = await context.newPage();
  await page.reload();
  await other.goto('/');
  for (const shown of [page, other]) {
    await expect(shown.locator('#who')).toHaveText('viewer (read)');
    await expect(shown.locator('#link')).toHaveText('live');
  }
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('dialog')).toContainText('holders of a token alone');
  expect(await context.cookies()).toEqual([]);
  await page.keyboard.press('Escape');
  await expect(page.locator('#entries')).toContainText('This is shown to holders of a token.');
  await expect(other.getByRole('dialog')).toContainText('You are signed out'); // it had the same session
  expect((await page.request.get('/v1/entries', { headers: { Cookie: `${cookie.name}=${cookie.value}` } })).status()).toBe(401);
});

test('says what is wrong with a token, and takes the next one', async ({ page }) => {
  await page.goto('/');
  await page.getByLabel('Token', { exact: true }).fill('blockd_a-guess-that-is-wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.locator('#token-fault')).toContainText('this token is not known');
  await expect(page.getByLabel('Token', { exact: true })).toBeFocused();
  await page.keyboard.type(token);
  await page.keyboard.press('Enter');
  await expect(page.locator('#who')).toHaveText('helpdesk (write)');
});

test('says so when the daemon is gone, and when it is back', async ({ page, context }) => {
  await open(page);
  await context.setOffline(true);
  await expect(page.getByRole('heading', { name: /^No answer/ })).toBeVisible();
  await context.setOffline(false);
  await expect(page.getByRole('heading', { name: 'All is well.' })).toBeVisible();
});

// A page of another site, in a browser that may reach both daemons: one that wants a
// token, and one that answers everybody on this machine.
test('a page of another site can neither read nor write', async ({ browser }) => {
  const site = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>other</title>'));
  await new Promise((settle) => site.listen(0, '127.0.0.1', settle));
  const page = await browser.newPage();
  try {
    await page.goto(`http://127.0.0.1:${site.address().port}/`);
    for (const daemon of [url, openURL]) {
      const outcomes = await page.evaluate(async ([daemon, token]) => {
        const body = '{"entry":"forged@shop.example"}';
        const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` };
        const attempts = [
          fetch(`${daemon}/v1/entries`, { method: 'POST', mode: 'no-cors', body }),
          fetch(`${daemon}/v1/entries`, { method: 'POST', headers, body }),
          fetch(`${daemon}/v1/entries?entry=kept.example`, { method: 'DELETE', headers }),
          fetch(`${daemon}/v1/lists`),
          fetch(`${daemon}/v1/events`),
        ];
        return (await Promise.allSettled(attempts)).map(({ value }) => value ? value.type : 'refused');
      }, [daemon, token]);
      expect(outcomes).toEqual(['opaque', 'refused', 'refused', 'refused', 'refused']);
      const [response] = await Promise.all([
        page.waitForResponse((response) => response.request().method() === 'POST'),
        page.evaluate((daemon) => {
          const form = Object.assign(document.createElement('form'), { method: 'post', action: `${daemon}/v1/entries`, enctype: 'text/plain', target: 'sink' });
          form.append(Object.assign(document.createElement('input'), { name: '{"entry":"forged@shop.example","why":"', value: '"}' }));
          document.body.append(Object.assign(document.createElement('iframe'), { name: 'sink' }), form);
          form.submit();
        }, daemon),
      ]);
      expect(response.status()).toBe(403);
      const frame = await page.evaluate((daemon) => {
        const frame = Object.assign(document.createElement('iframe'), { src: `${daemon}/` });
        document.body.append(frame);
        return new Promise((settle) => { frame.onload = settle; }).then(() => frame.contentDocument === null);
      }, daemon);
      expect(frame).toBe(true); // Chromium's own error page, of no origin
      expect(page.frames().map((one) => one.url()).filter((one) => one === `${daemon}/`)).toEqual([]);
    }
  } finally {
    await page.close();
    site.close();
  }
  expect(await mail('forged@shop.example')).toMatch(/^250 /);
  expect(await mail('x@kept.example')).toMatch(/^550 /);
});

// The browser sends the cookie to all ports of a host, and with requests of pages there: they are of the same site, and not of the same origin.
test('a page on another port of this machine cannot use the session', async ({ page, context }) => {
  await open(page);
  const site = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>other</title>'));
  await new Promise((settle) => site.listen(0, '127.0.0.1', settle));
  const other = await context.newPage();
  try {
    await other.goto(`http://127.0.0.1:${site.address().port}/`);
    const statuses = [];
    other.on('response', async (response) => {
      if (response.url().startsWith(url)) statuses.push([response.request().method(), response.status(), ((await response.request().allHeaders()).cookie ?? '').includes('blockd-session=')]);
    });
    await other.evaluate(async (daemon) => {
      const body = '{"entry":"ridden@shop.example"}';
      await Promise.allSettled([
        fetch(`${daemon}/v1/entries`, { method: 'POST', mode: 'no-cors', credentials: 'include', body }),
        fetch(`${daemon}/v1/entries`, { mode: 'no-cors', credentials: 'include' }),
        fetch(`${daemon}/v1/session`, { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"token":"x"}' }),
      ]);
      const form = Object.assign(document.createElement('form'), { method: 'post', action: `${daemon}/v1/entries`, enctype: 'text/plain' });
      form.append(Object.assign(document.createElement('input'), { name: '{"entry":"ridden@shop.example","why":"', value: '"}' }));
      document.body.append(form);
      form.submit();
    }, url);
    await expect.poll(() => statuses.length).toBe(4);
    expect(statuses.map(([, status]) => status)).toEqual([403, 403, 403, 403]);
    expect(statuses.some(([,, sent]) => sent)).toBe(true); // it is the daemon that refuses
  } finally {
    await other.close();
    site.close();
  }
  expect(await mail('ridden@shop.example')).toMatch(/^250 /);
  await page.reload();
  await expect(page.locator('#who')).toHaveText('helpdesk (write)');
});
