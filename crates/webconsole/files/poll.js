// Repeats work while a view is shown and the page is visible.

/* Calls `work` now, `periodMs` after each end, and whenever the page becomes visible, until `signal` aborts.
   `failed` gets the errors of `work`. */
export function poll(work, periodMs, signal, failed) {
  let timer;
  let isRunning = false;
  const turn = async () => {
    if (isRunning) return;
    isRunning = true;
    if (!document.hidden) {
      try {
        await work();
      } catch (error) {
        if (!signal.aborted) failed(error);
      }
    }
    isRunning = false;
    if (!signal.aborted) timer = setTimeout(turn, periodMs);
  };
  const seen = () => {
    if (document.hidden) return;
    clearTimeout(timer);
    turn();
  };
  document.addEventListener('visibilitychange', seen, { signal });
  signal.addEventListener('abort', () => clearTimeout(timer));
  return turn();
}
