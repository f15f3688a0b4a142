import { describe, expect, it } from 'vitest';
import { Tasks } from './tasks.mjs';

const done = async () => ({ made: false });
const newTasks = () => new Tasks(new AbortController().signal);

describe('set-up steps', () => {
  it('begin when what they need is done, and get its results', async () => {
    const tasks = newTasks();
    /** @type {string[]} */
    const order = [];
    const slow = tasks.add('slow', [], async () => {
      await new Promise(setImmediate);
      order.push('slow');
      return { made: true, value: 7 };
    });
    tasks.add('independent', [], async () => {
      order.push('independent');
      return { made: true };
    });
    tasks.add('dependent', [slow], async (_context, { value }) => {
      order.push(`dependent on ${value}`);
      return { made: true };
    });
    await tasks.finish();
    expect(order).toEqual(['independent', 'slow', 'dependent on 7']);
  });

  it('stop at the first failure: running ones are told, dependent ones never begin', async () => {
    const tasks = newTasks();
    let told = false;
    let begun = false;
    const broken = tasks.add('broken', [], async () => {
      throw new Error('no disk');
    });
    tasks.add('running', [], ({ signal }) => {
      return new Promise((resolve) =>
        signal.addEventListener('abort', () => {
          told = true;
          resolve({ made: false });
        }),
      );
    });
    tasks.add('dependent', [broken], () => {
      begun = true;
      return done();
    });
    await expect(tasks.finish()).rejects.toThrow('no disk');
    expect({ told, begun }).toEqual({ told: true, begun: false });
  });

  it('stop when the user says so', async () => {
    const stop = new AbortController();
    const tasks = new Tasks(stop.signal);
    tasks.add('running', [], ({ signal }) => {
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve({ made: false })));
    });
    await new Promise(setImmediate);
    stop.abort(new Error('stopped by SIGINT'));
    await expect(tasks.finish()).rejects.toThrow('stopped by SIGINT');
  });
});
