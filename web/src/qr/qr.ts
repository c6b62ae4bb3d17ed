// QR codes (ISO/IEC 18004): bytes, error correction level M, versions 1 to 20.

export interface Qr {
  /** Number of modules of a side, without the quiet zone. */
  readonly side: number;
  readonly isDark: (column: number, row: number) => boolean;
}

/** Error correction codewords of a block, and blocks, for level M by version (table 9). */
const CORRECTION = [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24, 28, 28, 26, 26, 26];
const BLOCKS = [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10, 10, 11, 13, 14, 16];

/** The QR code of a text, or undefined if it is too long. */
export function qr(text: string): Qr | undefined {
  const data = new TextEncoder().encode(text);
  for (let version = 1; version <= CORRECTION.length; version += 1) {
    const capacity = dataCodewords(version);
    const lengthBits = version < 10 ? 8 : 16;
    if (Math.ceil((4 + lengthBits + data.length * 8) / 8) > capacity) continue;
    return draw(version, interleave(version, encode(data, lengthBits, capacity)));
  }
  return undefined;
}

/** The dark modules as the path of an SVG whose unit is a module, inside a quiet zone of four. */
export function qrPath(code: Qr): { side: number; path: string } {
  let path = "";
  for (let row = 0; row < code.side; row += 1) {
    for (let column = 0; column < code.side; column += 1) {
      if (!code.isDark(column, row)) continue;
      let length = 1;
      while (column + length < code.side && code.isDark(column + length, row)) length += 1;
      path += `M${column + 4} ${row + 4}h${length}v1h-${length}z`;
      column += length;
    }
  }
  return { side: code.side + 8, path };
}

function encode(data: Uint8Array, lengthBits: number, capacity: number): Uint8Array {
  const bits: number[] = [];
  const push = (value: number, length: number) => {
    for (let bit = length - 1; bit >= 0; bit -= 1) bits.push((value >>> bit) & 1);
  };
  push(0b0100, 4);
  push(data.length, lengthBits);
  for (const byte of data) push(byte, 8);
  push(0, Math.min(4, capacity * 8 - bits.length));
  while (bits.length % 8 !== 0) bits.push(0);
  const words = new Uint8Array(capacity);
  for (const [index, bit] of bits.entries()) words[index >> 3] = (words[index >> 3] ?? 0) | (bit << (7 - (index & 7)));
  for (let index = bits.length / 8, pad = 0xec; index < capacity; index += 1, pad ^= 0xec ^ 0x11) words[index] = pad;
  return words;
}

/** Number of modules that hold codewords, in codewords (table 1). */
function rawCodewords(version: number): number {
  let modules = (16 * version + 128) * version + 64;
  if (version >= 2) {
    const patterns = Math.floor(version / 7) + 2;
    modules -= (25 * patterns - 10) * patterns - 55;
    if (version >= 7) modules -= 36;
  }
  return modules >> 3;
}

function dataCodewords(version: number): number {
  return rawCodewords(version) - at(CORRECTION, version - 1) * at(BLOCKS, version - 1);
}

/** Splits the data into blocks, adds the correction of each, and interleaves them. */
function interleave(version: number, data: Uint8Array): Uint8Array {
  const blocks = at(BLOCKS, version - 1);
  const correction = at(CORRECTION, version - 1);
  const raw = rawCodewords(version);
  const short = Math.floor(raw / blocks) - correction;
  const shortBlocks = blocks - (raw % blocks);
  const divisor = generator(correction);
  const parts: { data: Uint8Array; correction: Uint8Array }[] = [];
  for (let block = 0, start = 0; block < blocks; block += 1) {
    const part = data.slice(start, start + short + (block < shortBlocks ? 0 : 1));
    start += part.length;
    parts.push({ data: part, correction: remainder(part, divisor) });
  }
  const out: number[] = [];
  for (let index = 0; index <= short; index += 1) for (const part of parts) if (index < part.data.length) out.push(at(part.data, index));
  for (let index = 0; index < correction; index += 1) for (const part of parts) out.push(at(part.correction, index));
  return Uint8Array.from(out);
}

/** Multiplication in the field GF(2^8) with the polynomial 0x11d. */
function multiply(one: number, other: number): number {
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    product = (product << 1) ^ ((product >>> 7) * 0x11d);
    product ^= ((other >>> bit) & 1) * one;
  }
  return product;
}

function generator(degree: number): Uint8Array {
  const result = new Uint8Array(degree);
  result[degree - 1] = 1;
  let root = 1;
  for (let step = 0; step < degree; step += 1) {
    for (let index = 0; index < degree; index += 1) {
      result[index] = multiply(at(result, index), root) ^ (result[index + 1] ?? 0);
    }
    root = multiply(root, 2);
  }
  return result;
}

function remainder(data: Uint8Array, divisor: Uint8Array): Uint8Array {
  const result = new Uint8Array(divisor.length);
  for (const byte of data) {
    const factor = byte ^ at(result, 0);
    result.copyWithin(0, 1);
    result[result.length - 1] = 0;
    for (let index = 0; index < result.length; index += 1) result[index] = at(result, index) ^ multiply(at(divisor, index), factor);
  }
  return result;
}

/** The modules of a code: -1 not set yet, else light or dark, and which of them belong to patterns. */
class Canvas {
  readonly side: number;
  readonly dark: Uint8Array;
  readonly fixed: Uint8Array;

  constructor(readonly version: number) {
    this.side = version * 4 + 17;
    this.dark = new Uint8Array(this.side * this.side);
    this.fixed = new Uint8Array(this.side * this.side);
  }

  set(column: number, row: number, isDark: boolean): void {
    if (column < 0 || row < 0 || column >= this.side || row >= this.side) return;
    this.dark[row * this.side + column] = isDark ? 1 : 0;
    this.fixed[row * this.side + column] = 1;
  }

  patterns(): void {
    const { side, version } = this;
    for (let index = 0; index < side; index += 1) {
      this.set(6, index, index % 2 === 0);
      this.set(index, 6, index % 2 === 0);
    }
    for (const [column, row] of [[3, 3], [side - 4, 3], [3, side - 4]] as const) this.#square(column, row, 4, [2, 4]);
    const places = alignment(version, side);
    const last = places.length - 1;
    for (const [first, column] of places.entries()) {
      for (const [second, row] of places.entries()) {
        const isCorner = (first === 0 && second === 0) || (first === 0 && second === last) || (first === last && second === 0);
        if (!isCorner) this.#square(column, row, 2, [1]);
      }
    }
    this.format(0);
    if (version >= 7) {
      let rest = version;
      for (let step = 0; step < 12; step += 1) rest = (rest << 1) ^ ((rest >>> 11) * 0x1f25);
      const bits = (version << 12) | rest;
      for (let index = 0; index < 18; index += 1) {
        const isDark = ((bits >>> index) & 1) === 1;
        const near = Math.floor(index / 3);
        const far = side - 11 + (index % 3);
        this.set(far, near, isDark);
        this.set(near, far, isDark);
      }
    }
  }

  /** A square pattern with light rings at these distances from its middle. */
  #square(column: number, row: number, reach: number, light: readonly number[]): void {
    for (let down = -reach; down <= reach; down += 1) {
      for (let right = -reach; right <= reach; right += 1) {
        this.set(column + right, row + down, !light.includes(Math.max(Math.abs(down), Math.abs(right))));
      }
    }
  }

  /** Level M and the mask, with their correction (section 7.9). */
  format(mask: number): void {
    let rest = mask;
    for (let step = 0; step < 10; step += 1) rest = (rest << 1) ^ ((rest >>> 9) * 0x537);
    const bits = ((mask << 10) | rest) ^ 0x5412;
    const bit = (index: number) => ((bits >>> index) & 1) === 1;
    for (let index = 0; index <= 5; index += 1) this.set(8, index, bit(index));
    this.set(8, 7, bit(6));
    this.set(8, 8, bit(7));
    this.set(7, 8, bit(8));
    for (let index = 9; index < 15; index += 1) this.set(14 - index, 8, bit(index));
    for (let index = 0; index < 8; index += 1) this.set(this.side - 1 - index, 8, bit(index));
    for (let index = 8; index < 15; index += 1) this.set(8, this.side - 15 + index, bit(index));
    this.set(8, this.side - 8, true);
  }

  /** Writes the codewords in the zigzag of section 7.7.3. */
  codewords(words: Uint8Array): void {
    let index = 0;
    for (let right = this.side - 1; right >= 1; right -= 2) {
      if (right === 6) right = 5;
      for (let step = 0; step < this.side; step += 1) {
        for (let side = 0; side < 2; side += 1) {
          const column = right - side;
          const row = ((right + 1) & 2) === 0 ? this.side - 1 - step : step;
          const place = row * this.side + column;
          if (this.fixed[place] === 1 || index >= words.length * 8) continue;
          this.dark[place] = (at(words, index >> 3) >>> (7 - (index & 7))) & 1;
          index += 1;
        }
      }
    }
  }

  mask(mask: number): void {
    for (let row = 0; row < this.side; row += 1) {
      for (let column = 0; column < this.side; column += 1) {
        const place = row * this.side + column;
        if (this.fixed[place] === 0 && MASKS[mask]?.(column, row) === true) this.dark[place] = at(this.dark, place) ^ 1;
      }
    }
  }

  isDark(column: number, row: number): boolean {
    return this.dark[row * this.side + column] === 1;
  }
}

const MASKS: readonly ((x: number, y: number) => boolean)[] = [
  (x, y) => (x + y) % 2 === 0,
  (_, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
];

function alignment(version: number, side: number): number[] {
  if (version === 1) return [];
  const number = Math.floor(version / 7) + 2;
  const step = Math.ceil((version * 4 + 4) / (number * 2 - 2)) * 2;
  const places = [6];
  for (let position = side - 7; places.length < number; position -= step) places.splice(1, 0, position);
  return places;
}

function draw(version: number, words: Uint8Array): Qr {
  const canvas = new Canvas(version);
  canvas.patterns();
  canvas.codewords(words);
  let best = 0;
  let least = Infinity;
  for (let mask = 0; mask < MASKS.length; mask += 1) {
    canvas.mask(mask);
    canvas.format(mask);
    const found = penalty(canvas);
    if (found < least) [best, least] = [mask, found];
    canvas.mask(mask);
  }
  canvas.mask(best);
  canvas.format(best);
  return canvas;
}

/** How hard the code is to read (section 7.8.3): runs, blocks, and the share of dark modules. */
function penalty(canvas: Canvas): number {
  const { side } = canvas;
  let result = 0;
  let dark = 0;
  for (let one = 0; one < side; one += 1) {
    for (const isRow of [true, false]) {
      let run = 0;
      let before = false;
      let history = "";
      for (let other = 0; other < side; other += 1) {
        const isDark = isRow ? canvas.isDark(other, one) : canvas.isDark(one, other);
        if (isRow && isDark) dark += 1;
        run = other > 0 && isDark === before ? run + 1 : 1;
        if (run === 5) result += 3;
        else if (run > 5) result += 1;
        before = isDark;
        history += isDark ? "1" : "0";
      }
      result += 40 * (history.split("10111010000").length - 1 + (history.split("00001011101").length - 1));
    }
  }
  for (let row = 0; row < side - 1; row += 1) {
    for (let column = 0; column < side - 1; column += 1) {
      const isDark = canvas.isDark(column, row);
      if (isDark === canvas.isDark(column + 1, row) && isDark === canvas.isDark(column, row + 1) && isDark === canvas.isDark(column + 1, row + 1)) result += 3;
    }
  }
  const total = side * side;
  return result + 10 * Math.floor(Math.abs(dark * 20 - total * 10) / total);
}

function at(values: ArrayLike<number>, index: number): number {
  return values[index] ?? 0;
}
