// What the tests of the console share: a visit that fails by whatever the page does
// wrong, and a mail client.

import { createConnection } from 'node:net';
import { test as base, expect } from '@playwright/test';

export { expect };
export const { BLOCKD_URL: url, BLOCKD_OPEN_URL: openURL, BLOCKD_TOKEN: token, BLOCKD_READ_TOKEN: readToken, BLOCKD_ADMIN_TOKEN: adminToken, BLOCKD_DIR: dir } = process.env;

/** test gives each test a page whose errors, dialogs and violations of its policy are failures. */
export const test = base.extend({
  page: async ({ page }, use) => {
    const faults = [];
    page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
    page.on('dialog', (dialog) => {
      faults.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on('console', (message) => {
      // What the daemon refuses, and its absence, Chromium tells of by itself.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) faults.push(`console: ${message.text()}`);
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(url)) faults.push(`asked elsewhere: ${request.url()}`);
      if (request.url().includes(token) || request.url().includes(readToken) || adminToken && request.url().includes(adminToken)) faults.push('a token in an address');
    });
    await page.exposeFunction('violation', (text) => faults.push(`policy: ${text}`));
    await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => window.violation(`${event.violatedDirective} ${event.blockedURI}`)));
    await use(page);
    await page.unrouteAll({ behavior: 'ignoreErrors' }); // of an answer that was on its way when the test had seen all
    expect(faults).toEqual([]);
  },
});

/** open opens the console with a token. */
export async function open(page, text = token) {
  await page.goto('/');
  await page.getByLabel('Token', { exact: true }).fill(text);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.locator('#token-dialog')).toBeHidden();
  await expect(page.locator('#link')).toHaveText('live');
}

/** view leads to a view, as a person does. */
export async function view(page, name) {
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name }).click();
  await expect(page.getByRole('heading', { level: 1, name })).toBeFocused();
}

/** mail asks the SMTP door about a sender, and returns the reply to RCPT; or sends a message, and returns the reply to that. */
export function mail(sender, recipient = 'user@here.example', message = null) {
  const [host, port] = process.env.BLOCKD_SMTP.split(':');
  return new Promise((settle, fail) => {
    const lines = ['EHLO client.example', `MAIL FROM:<${sender}>`, `RCPT TO:<${recipient}>`, ...message === null ? [] : ['DATA', `${message}\r\n.`], 'QUIT'];
    const replies = [];
    let text = '';
    const socket = createConnection({ host, port: Number(port), timeout: 60_000 });
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
      for (let end; (end = text.indexOf('\r\n')) >= 0; text = text.slice(end + 2)) {
        const line = text.slice(0, end);
        if (line[3] === '-') continue; // more of the same reply follows
        replies.push(line);
        if (lines.length > 0) socket.write(`${lines.shift()}\r\n`);
      }
    });
    socket.on('timeout', () => socket.destroy(new Error('no answer by SMTP')));
    socket.on('error', fail);
    socket.on('close', () => settle(replies[message === null ? 3 : 5]));
  });
}
