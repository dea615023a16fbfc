// Questions: a confirmation before something is lost, and short forms.

import { h } from './dom.js';

/* Opens a dialog with this content. Resolves to the result of `work`, or to undefined if the dialog was
   closed. If `work` throws, the dialog stays open and shows the error. */
export function ask(title, content, verb, work, { kind = 'main' } = {}) {
  return new Promise((resolve) => {
    const wrong = h('p', { class: 'wrong', role: 'alert' });
    const submit = h('button', { class: kind }, verb);
    const close = () => dialog.close();
    const form = h('form', { class: 'form', method: 'dialog' }, content, wrong,
      h('div', { class: 'row' }, h('button', { type: 'button', onclick: close }, 'Cancel'), submit));
    const heading = h('h2', { id: 'question' }, title);
    const dialog = h('dialog', { 'aria-labelledby': 'question' }, heading, form);
    let outcome;
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      submit.disabled = true;
      wrong.textContent = '';
      try {
        outcome = await work();
        dialog.close();
      } catch (error) {
        wrong.textContent = error.message;
      } finally {
        submit.disabled = false;
      }
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(outcome);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/* Asks before it does `work`, which cannot be undone. Resolves to whether `work` was done. */
export async function confirm(title, text, verb, work) {
  const done = await ask(title, h('p', {}, text), verb, async () => {
    await work();
    return true;
  }, { kind: 'bad' });
  return done === true;
}
