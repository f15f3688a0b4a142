import { describe, expect, it } from 'vitest';
import { allPages } from './pages.ts';

describe('allPages', () => {
  it('joins the pages in order', async () => {
    const pages: Record<string, { items: number[]; nextCursor: string | undefined }> = {
      first: { items: [1, 2], nextCursor: 'second' },
      second: { items: [], nextCursor: 'third' },
      third: { items: [3], nextCursor: undefined },
    };
    expect(await allPages(async (cursor) => pages[cursor ?? 'first'] ?? { items: [], nextCursor: undefined })).toEqual([
      1, 2, 3,
    ]);
  });

  it('stops at a server that repeats a cursor', async () => {
    await expect(allPages(async () => ({ items: [1], nextCursor: 'same' }))).rejects.toThrow('twice');
  });
});
