import { PAGE_BYTES } from './layer-file.ts';
import { PIECE_BYTES } from './pump.ts';

const PIECE_PAGES = PIECE_BYTES / PAGE_BYTES;
/** Reading this many pages too much costs less than another call. */
const MAX_GAP_PAGES = 8;

export interface PagePiece {
  firstPage: number;
  pages: number;
}

/** Ranges that hold every page whose byte in `marked` is 1, ascending. Each begins and ends with one. */
export function* piecesOfMarked(marked: Uint8Array): Generator<PagePiece> {
  for (let first = marked.indexOf(1); first >= 0; ) {
    let end = first + 1;
    let next = marked.indexOf(1, end);
    while (next >= 0 && next - end <= MAX_GAP_PAGES && next < first + PIECE_PAGES) {
      end = next + 1;
      next = marked.indexOf(1, end);
    }
    yield { firstPage: first, pages: end - first };
    first = next;
  }
}
