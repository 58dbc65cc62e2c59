// Tokens and sessions, as an administrator sees them.

import { adminToken, expect, open, readToken, test, token, url, view } from './visit.js';

test.skip(Boolean(process.env.BLOCKD_TEST_SCREENSHOTS), 'pictures are taken alone');

const rows = (page, part) => page.locator(`#access-${part}`).getByRole('row');

test('shows who may, makes a token and revokes it', async ({ page, browser }) => {
  await open(page, adminToken);
  await view(page, 'Access');
  await expect(rows(page, 'tokens').filter({ hasText: 'helpdesk' })).toContainText('write');
  await expect(rows(page, 'tokens').filter({ hasText: 'boss' })).toContainText('yours');
  await page.getByLabel('Name: a program or a person').fill('pan el');
  await page.getByRole('button', { name: 'Make a token' }).click();
  await expect(page.locator('#access-fault')).toContainText('want letters, digits');
  await page.getByLabel('Name: a program or a person').fill('panel');
  await page.getByLabel('May').selectOption('write');
  await page.getByLabel('Only for these mailboxes and domains').fill('here.example, ann@there.example');
  await page.getByRole('button', { name: 'Make a token' }).click();
  const made = page.locator('#access-made');
  await expect(made.getByRole('button', { name: 'Done' })).toBeFocused();
  const text = await made.locator('code').textContent();
  expect(text).toMatch(/^blockd_/);
  const row = rows(page, 'tokens').filter({ hasText: 'panel' });
  await expect(row).toContainText('write what is of here.example, ann@there.example');
  await expect(row).toContainText('not since the daemon began');
  const asks = async () => (await page.request.get(`${url}/v1/owners/here.example/entries`, { headers: { Authorization: `Bearer ${text}`, Cookie: '' } })).status();
  expect(await asks()).toBe(200);
  await view(page, 'Lists');
  await view(page, 'Access');
  await expect(page.locator('main')).not.toContainText(text); // once
  await expect(row).toContainText(/\d+ s ago/);

  const other = await (await browser.newContext({ baseURL: url })).newPage();
  await other.request.post(`${url}/v1/session`, { data: { token: readToken } });
  await other.goto('/#lists');
  await page.reload();
  const session = rows(page, 'sessions').filter({ hasText: 'viewer' }).first();
  await expect(session).toContainText('token');
  await expect(rows(page, 'sessions').filter({ hasText: 'this browser' })).toHaveCount(1);
  await session.getByRole('button', { name: 'End the session of viewer…' }).click();
  await expect(page.getByRole('button', { name: 'Cancel' })).toBeFocused();
  await page.locator('#message-dialog').getByRole('button', { name: /^End / }).last().click();
  await expect(page.locator('#done')).toContainText('viewer is signed out.');
  await expect(rows(page, 'sessions').filter({ hasText: 'viewer' })).toHaveCount(0);
  expect((await (await other.request.get(`${url}/v1/session`)).json()).signed_in).toBe(false);
  await other.context().close();

  await page.getByLabel('Search in tokens and sessions').fill('there.example');
  await expect(rows(page, 'tokens')).toHaveCount(2);
  await expect(page.locator('#access-sessions')).toContainText('None has this in it.');
  await row.getByRole('button', { name: 'Revoke panel…' }).press('Enter');
  await page.keyboard.press('Escape');
  await expect(row).toBeVisible();
  await row.getByRole('button', { name: 'Revoke panel…' }).press('Enter');
  await page.locator('#message-dialog').getByRole('button', { name: 'Revoke' }).click();
  await expect(page.locator('#done')).toContainText('The token of panel is worth nothing now.');
  await expect(row).toHaveCount(0);
  expect(await asks()).toBe(401);
});

test('is an administrator’s', async ({ page }) => {
  await open(page, token);
  await expect(page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Changes' })).toBeVisible();
  await expect(page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Access' })).toBeHidden();
  await page.goto('/#access');
  for (const part of ['tokens', 'sessions']) await expect(page.locator(`#access-${part} .forbidden`)).toContainText('This token may not see this: this wants the scope admin');
  await expect(page.getByRole('button', { name: 'Make a token' })).toBeHidden();
});

test('tells loading, empty, forbidden, failed and lacking apart', async ({ page }) => {
  await open(page, adminToken);
  const problem = (status, detail) => (route) => route.fulfill({ status, contentType: 'application/problem+json', json: { status, detail } });
  for (const [part, none] of Object.entries({ tokens: 'Nobody has a token', sessions: 'Nobody has signed in.' })) {
    const shown = page.locator(`#access-${part}`);
    const answer = async (reply) => {
      await page.unroute(`**/v1/${part}`);
      await page.route(`**/v1/${part}`, reply);
      await view(page, 'Lists');
      await view(page, 'Access');
    };
    let go = () => {};
    const held = new Promise((settle) => { go = settle; });
    await answer(async (route) => {
      await held;
      await route.fulfill({ json: { [part]: [] } });
    });
    await expect(shown).toHaveAttribute('aria-busy', 'true');
    go();
    await expect(shown.locator('.none')).toContainText(none);
    await answer(problem(404, 'no such resource'));
    await expect(shown.locator('.none')).toContainText('This daemon has');
    await answer(problem(403, 'this wants the scope admin'));
    await expect(shown.locator('.forbidden')).toBeVisible();
    await answer(problem(503, 'the file cannot be read'));
    await expect(shown.locator('.failed')).toContainText('the file cannot be read');
    await page.unroute(`**/v1/${part}`);
    await shown.getByRole('button', { name: 'Try again' }).click();
    await expect(shown.getByRole('row').first()).toBeVisible();
  }
});
