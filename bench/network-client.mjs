/**
 * GET requests to one server over HTTP, from wherever it is run: `node network-client.mjs <json>` prints {requestsPerSecond, ms: number[]}. Without imports of the project, since guests
 * run it too. {host, path, address?, resolver?, total, atOnce, keepAlive}: without an address, `host` is looked up there.
 */
import dns from 'node:dns/promises';
import http from 'node:http';

const order = JSON.parse(process.argv[2] ?? '{}');
const resolver = new dns.Resolver();
if (order.resolver !== undefined) resolver.setServers([order.resolver]);
const address = order.address ?? (await resolver.resolve4(order.host))[0];
const agent = new http.Agent({ keepAlive: order.keepAlive, maxSockets: order.atOnce });

const get = () =>
  new Promise((resolve, reject) => {
    const from = performance.now();
    http
      .get({ host: address, path: order.path, headers: { host: order.host }, agent }, (response) => {
        response.resume();
        response.on('end', () => resolve(performance.now() - from));
      })
      .on('error', reject);
  });

/** @type {number[]} */
const ms = [];
/** @param {number} total */
async function many(total) {
  let left = total;
  const one = async () => {
    while (left-- > 0) ms.push(await get());
  };
  await Promise.all(Array.from({ length: order.atOnce }, one));
}
await many(order.atOnce * 4); // the first ones find everything cold
ms.length = 0;
const from = performance.now();
await many(order.total);
const seconds = (performance.now() - from) / 1_000;
process.stdout.write(JSON.stringify({ requestsPerSecond: order.total / seconds, ms }));
process.exit();
