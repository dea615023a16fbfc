// An order and the message about it are one record of the log: a crash leaves both, or neither. The reader stores its
// position together with what it has done, so it counts every order once, also if it is killed and started again.

const url = process.env.HTTP_URL ?? 'http://127.0.0.1:5984';
const ORDERS = 20;

async function post(path, body) {
  const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
  const response = await fetch(url + path, options);
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return response.json();
}

/** Runs one command of the Redis protocol. */
async function run(...command) {
  const [reply] = await post('/_redis', [command]);
  if (reply?.error) throw new Error(reply.error);
  return reply;
}

/** A script is one record. */
const ORDER = "redis.call('HSET', KEYS[1], 'item', ARGV[1]) redis.call('PUBLISH', 'shop.orders', ARGV[1])";
const COUNT = "redis.call('HINCRBY', 'shop:sold', ARGV[1], 1) redis.call('SET', 'shop:position', ARGV[2])";

async function sell() {
  for (let number = 0; number < ORDERS; number += 1) {
    await run('EVAL', ORDER, 1, `shop:order:${number}`, number % 2 ? 'tea' : 'milk');
  }
}

async function count() {
  for (let counted = 0; counted < ORDERS; ) {
    const from = (await run('GET', 'shop:position')) ?? '-';
    const { messages, lost } = await post('/_redis/channel', { channel: 'shop.orders', from, wait_ms: 20000 });
    if (lost) throw new Error(`messages before ${lost} are no longer kept`);
    for (const { position, message } of messages) {
      await run('EVAL', COUNT, 0, message, position);
      counted += 1;
    }
  }
}

await run('CONFIG', 'SET', 'durable-channels', 'shop.*');
await Promise.all([sell(), count()]);
const sold = await run('HGETALL', 'shop:sold');
console.log(JSON.stringify(sold.map ?? sold));
