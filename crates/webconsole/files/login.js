// The log-in form.

import { logIn } from './api.js';
import { h } from './dom.js';

/* The form; calls `done` after a successful log-in. */
export function loginView(done) {
  const name = h('input', { name: 'name', autocomplete: 'username', required: true, value: 'default' });
  const password = h('input', { name: 'password', type: 'password', autocomplete: 'current-password', required: true });
  const wrong = h('p', { class: 'wrong', role: 'alert' });
  const submit = h('button', { class: 'main' }, 'Log in');
  const form = h('form', { class: 'form' },
    h('label', {}, 'User', name),
    h('label', {}, 'Password', password),
    wrong, h('div', {}, submit),
    h('p', { class: 'quiet' }, '“default” has the password of the Redis protocol (requirepass).'));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    submit.disabled = true;
    wrong.textContent = '';
    try {
      await logIn(name.value, password.value);
      await done();
    } catch (error) {
      wrong.textContent = error.message;
      password.select();
    } finally {
      submit.disabled = false;
    }
  });
  return h('section', { class: 'panel login' }, h('h1', {}, 'Log in'), h('div', { class: 'quiet' }, ' '), form);
}
