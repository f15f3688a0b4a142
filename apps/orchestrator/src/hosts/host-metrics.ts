/** Hosts by the state that is shown, counted when they are asked for: every orchestrator says the same. */
import { hostStates } from '@fuse/contract';
import { Gauge, type Registry } from 'prom-client';
import type { Db } from '../db/db.ts';
import { shownState } from './host.ts';
import { allHosts } from './host-store.ts';

export function installHostMetrics(registry: Registry, db: Db): void {
  new Gauge({
    name: 'orchestrator_fleet_hosts',
    help: 'Registered hosts by state',
    labelNames: ['state'],
    registers: [registry],
    async collect() {
      const states = await allHosts(db.query)
        .then((rows) => rows.map(shownState))
        .catch(() => undefined);
      if (states === undefined) return this.reset(); // without a database nobody knows
      for (const state of hostStates) this.set({ state }, states.filter((each) => each === state).length);
    },
  });
}
