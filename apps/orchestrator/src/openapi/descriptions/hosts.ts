import { Host, JoinedHost, JoinToken, ListHosts } from '@fuse/contract';
import type { Operations } from '../operation.ts';

export const hostOperations: Operations = {
  'GET /v1/hosts': { tag: 'hosts', summary: 'Hosts, by id', answers: { 200: ListHosts } },
  'POST /v1/hosts': { tag: 'hosts', summary: 'Register a host, or replace it', answers: { 201: Host } },
  'GET /v1/hosts/:id': { tag: 'hosts', summary: 'One host', answers: { 200: Host } },
  'POST /v1/hosts/:id': {
    tag: 'hosts',
    summary: 'cordon, uncordon, drain, probe, lost',
    description: '`probe` answers with the host as it is now; `lost` gives up what is on it, 409 while it answers.',
    actions: { cordon: null, uncordon: null, drain: null, probe: null, lost: null },
    answers: { 200: Host, 204: null },
  },
  'DELETE /v1/hosts/:id': { tag: 'hosts', summary: 'Remove an empty host', answers: { 204: null } },
  'POST /v1/host-join-tokens': {
    tag: 'hosts',
    summary: 'A token by which hosts join; it is shown this once',
    bodyOptional: true,
    answers: { 201: JoinToken },
  },
  'POST /v1/hosts/join': { tag: 'hosts', summary: 'A host agent registers itself', answers: { 201: JoinedHost } },
};
