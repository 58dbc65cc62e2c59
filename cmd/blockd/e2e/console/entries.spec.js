// Live entries by the dozen: in by text and by file, found, sorted, and out again.

import { expect, mail, open, test, view } from './visit.js';

const rows = (page) => page.locator('#entries tbody tr');
const done = (page) => page.locator('#done');

test('adds and removes many entries at once, after a preview', async ({ page }) => {
  await open(page);
  await view(page, 'Entries');
  await page.getByRole('button', { name: 'Many at once…' }).click();
  await page.getByLabel('Entries, one a line').fill('many1.example # a comment\n\nmany2.example\nmany1.example\n192.0.2.200\n');
  await page.getByLabel('Reason for those without one').fill('by the dozen');
  await page.getByRole('button', { name: 'Preview' }).click();
  const preview = page.getByRole('region', { name: 'Preview' });
  await expect(preview).toContainText('3 to block');
  expect(await mail('x@many1.example')).toMatch(/^250 /); // nothing was done
  await page.getByRole('button', { name: 'Put 3 in force' }).click();
  await expect(done(page)).toContainText('3 added.');
  expect(await mail('x@many1.example')).toMatch(/^550 /);
  await page.getByRole('searchbox', { name: 'Search in the entries' }).fill('by the dozen');
  await expect(rows(page)).toHaveCount(3);
  await expect(page).toHaveURL(/q=by%20the%20dozen/);
  await page.getByLabel('Sorted by').selectOption('entry');
  await expect(rows(page).locator('code')).toHaveText(['192.0.2.200', 'many1.example', 'many2.example']);
  await page.reload();
  await expect(rows(page)).toHaveCount(3);
  await expect(page.getByLabel('Sorted by')).toHaveValue('entry');
  await page.getByRole('button', { name: 'Remove these…' }).click();
  await expect(preview).toContainText('3 to remove');
  await page.getByRole('button', { name: 'Remove 3' }).click();
  await expect(done(page)).toContainText('3 removed.');
  expect(await mail('x@many1.example')).toMatch(/^250 /);
  await done(page).getByRole('button', { name: 'Undo' }).click();
  await expect(done(page)).toContainText('3 added.');
  await expect(rows(page)).toHaveCount(3);
  await page.getByRole('button', { name: 'Remove these…' }).click();
  await page.getByRole('button', { name: 'Remove 3' }).click();
  await expect(page.locator('#entries')).toContainText('Nothing has "by the dozen" in it.');
});

test('takes the CSV that it gave', async ({ page }) => {
  await open(page);
  await view(page, 'Entries');
  await page.getByRole('searchbox', { name: 'Search in the entries' }).fill('kept.example');
  await expect(rows(page)).toHaveCount(1);
  const [file] = await Promise.all([page.waitForEvent('download'), page.locator('#entries-files').getByRole('link', { name: 'CSV', exact: true }).click()]);
  expect(file.suggestedFilename()).toMatch(/^entries-\d{4}-\d\d-\d\d\.csv$/);
  await page.getByRole('button', { name: 'Many at once…' }).click();
  await expect(page.locator('#bulk-dialog')).toBeVisible(); // its code, which reads the file, comes when it is first asked for
  await page.getByLabel('Or a file of them').setInputFiles({ name: 'entries.csv', mimeType: 'text/csv',
    buffer: Buffer.from('entry,action,why,author,expires,added,number\r\nin.example,allow,"of a ""file"", quoted",jo,2099-01-01T00:00:00Z,,\r\nout.example,block,,,,,\r\n') });
  const preview = page.getByRole('region', { name: 'Preview' });
  await expect(preview.getByRole('row', { name: /in\.example/ })).toContainText('of a "file", quoted');
  await expect(preview.getByRole('row', { name: /in\.example/ })).toContainText('2099-01-01');
  await expect(preview).toContainText('1 to allow, 1 to block');
  await page.getByRole('button', { name: 'Put 2 in force' }).click();
  await expect(done(page)).toContainText('2 added.');
  await done(page).getByRole('button', { name: 'Undo' }).click();
  await expect(done(page)).toContainText('2 removed.');
});

test('changes nothing where the gate refuses one of many', async ({ page }) => {
  await open(page);
  await view(page, 'Entries');
  await page.getByRole('button', { name: 'Many at once…' }).click();
  await page.getByLabel('Entries, one a line').fill('fine.example\ngmail.com\n');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('button', { name: 'Put 2 in force' }).click();
  await expect(page.locator('#bulk-fault')).toContainText('gmail.com was not taken: it covers the protected domain gmail.com as a whole');
  expect(await mail('x@fine.example')).toMatch(/^250 /);
});
