// How a view looks.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dir, expect } from './visit.js';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** folder is where pictures go; undefined: none are taken. */
export const folder = process.env.BLOCKD_TEST_SCREENSHOTS;

// hidden are folders of this run, which are nobody's business.
const hidden = (page) => page.evaluate((dir) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const beside = dir.slice(0, dir.lastIndexOf('/') + 1); // where other daemons of the run are, in folders with numbers
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(dir, '/etc/blockd').split(beside).map((text, i) => (i > 0 ? text.replace(/^\d+/, '/etc/blockd') : text)).join('');
}, dir);

/**
 * look judges by axe what is shown, in both themes, on a desk and on a phone, where nothing may be wider than the screen. With -update it takes the
 * pictures of docs/console instead.
 */
export async function look(page, name) {
  for (const [size, width, height] of [['', 1280, 860], ['-phone', 390, 844]]) {
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height });
      if (folder) {
        await hidden(page);
        await page.screenshot({ path: `${folder}/console/${name}-${colorScheme}${size}.png` });
        continue;
      }
      const faults = await page.evaluate(`${axe}; axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html)]))`);
      expect(faults, `${name}, ${colorScheme}${size}`).toEqual([]);
      await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth), `${name}${size}`).toBeLessThanOrEqual(width);
    }
  }
}
