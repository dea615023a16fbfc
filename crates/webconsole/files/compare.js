// Two texts compared line by line.

import { h } from './dom.js';

/* Pairs of lines beyond which texts are not compared, but shown one after the other. */
const PAIRS_MAX = 4_000_000;

/* The lines of both texts in their order, as [kind, line]: `-` only in the first, `+` only in the second, a
   space in both. */
export function compare(first, second) {
  const [a, b] = [first.split('\n'), second.split('\n')];
  const all = (kind, lines) => lines.map((line) => [kind, line]);
  if (a.length * b.length > PAIRS_MAX) return [...all('-', a), ...all('+', b)];
  // The length of the longest common subsequence of the lines from i and from j on.
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      lines.push([' ', a[i]]);
      [i, j] = [i + 1, j + 1];
    } else if (common[(i + 1) * width + j] >= common[i * width + j + 1]) {
      lines.push(['-', a[i]]);
      i += 1;
    } else {
      lines.push(['+', b[j]]);
      j += 1;
    }
  }
  return [...lines, ...all('-', a.slice(i)), ...all('+', b.slice(j))];
}

const NAMES = { '-': 'less', '+': 'more', ' ': null };

/* An element with both texts as one, in which the lines of only one of them are marked. */
export const compared = (name, first, second) => h('div', { class: 'terminal compared', tabindex: '0', role: 'region', 'aria-label': name },
  compare(first, second).map(([kind, line]) => h('div', { class: `value ${NAMES[kind] ?? ''}` }, `${kind} ${line}`)));
