/** Tells `./test` which Node tests are running, so that it can name those that hang. A reporter of node:test. */

import { appendFileSync } from 'node:fs';

const KINDS = { 'test:dequeue': 'begins', 'test:pass': 'ends', 'test:fail': 'ends' };

export default async function* report(events) {
  const file = process.env.SHEAF_TEST_PROGRESS;
  for await (const { type, data } of events) {
    if (file && KINDS[type] && !data.name.endsWith('.js')) {
      appendFileSync(file, `${KINDS[type]} ${data.name}\n`);
    }
  }
}
