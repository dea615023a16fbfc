// The log-in form.

import { logIn } from './api.js';
import { h } from './dom.js';
import { ALL, LOOK } from './rights.js';

const RIGHTS = 'The console needs an admin: “default” with the password of the Redis protocol (requirepass), the user of admin-user with admin-password, or a user that may run all of @admin.';

/* The form; calls `done` after a successful log-in. `stranger` is the name of a user who is logged in, but is
   no admin; or null. */
export function loginView(done, stranger = null) {
  const name = h('input', { name: 'name', autocomplete: 'username', required: true, value: stranger ?? 'default' });
  const password = h('input', { name: 'password', type: 'password', autocomplete: 'current-password', required: true });
  const wrong = h('p', { class: 'wrong', role: 'alert' }, stranger !== null && `${stranger} is no admin: it needs all of @admin, and the rights of each view. For everything, an admin runs ACL SETUSER ${stranger} ${ALL} – or, to look at everything and leave keys as they are, ACL SETUSER ${stranger} ${LOOK}`);
  const submit = h('button', { class: 'main' }, 'Log in');
  const form = h('form', { class: 'form' },
    h('label', {}, 'User', name),
    h('label', {}, 'Password', password),
    wrong, h('div', {}, submit),
    h('p', { class: 'quiet' }, RIGHTS));
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
