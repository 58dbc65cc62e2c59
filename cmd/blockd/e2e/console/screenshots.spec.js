// The pictures of README.md and docs: go test ./cmd/blockd/e2e/console -run ConsoleLooks -update

import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dir, expect, mail, open, test } from './visit.js';

const folder = process.env.BLOCKD_TEST_SCREENSHOTS;

test.skip(!folder, 'pictures are taken with -update');

const list = `${dir}/phishing.txt`;
const replace = (text) => {
  writeFileSync(`${list}.new`, text);
  renameSync(`${list}.new`, list);
};

const senders = ['offers@mx.listed.example', 'ann@partner.example', 'news@listed.example', 'bob@shop.example', 'win@second.example',
  'carol@uni.example', 'offers@mx.listed.example', 'dave@partner.example', 'invoice@second.example', 'erin@shop.example'];

let was = '';

for (const [name, colorScheme, width, height] of [['light', 'light', 1060, 1100], ['dark', 'dark', 1060, 1100], ['phone', 'light', 390, 844]]) {
  test(`takes a picture, ${name}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width, height });
    let reply = '';
    for (const sender of senders) {
      const one = await mail(sender, `${sender.length % 2 ? 'sales' : 'info'}@here.example`);
      if (one.startsWith('550')) reply = one;
    }
    if (name === 'dark') {
      was = readFileSync(list, 'utf8');
      replace('<!doctype html><title>503</title>');
    }
    await open(page);
    await expect(page.getByRole('heading', { name: name === 'light' ? 'All is well.' : 'Filtering, with one problem.' })).toBeVisible();
    await page.getByRole('searchbox', { name: /^Sender, domain/ }).fill(name === 'light' ? reply : 'offers@mx.listed.example');
    await expect(page.getByRole('region', { name: 'Answer' })).toContainText(name === 'light' ? 'If it came now' : 'Mail from there');
    await page.evaluate((dir) => { // a folder that is not this run's
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(dir, '/etc/blockd');
    }, dir);
    await page.screenshot({ path: `${folder}/console-${name}.png` });
    if (name === 'phone') replace(was);
  });
}
