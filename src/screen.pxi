# Part of _core.pyx: screens of games made grey and small.

cdef enum:
    LARGEST_SIDE = 1000
    LARGEST_ROWS = 257  # sums of rows are uint16
    LARGEST_AREA = 65536  # totals become float32 without rounding

cdef double SMALLEST_PART = 1e-6  # of a pixel: less is a rounding error


cdef class Greys:
    """The grey of each colour, as far as it has been seen."""
    cdef uint16_t[::1] table

    def __init__(self):
        self.table = np.full(256, FASTES_NO_GREY, dtype=np.uint16)

    def look_up(self, const uint8_t[:, ::1] colours not None, uint8_t[:, ::1] grey not None):
        """grey = the grey of each of colours, uint8 (height, width). Returns False if one is unknown: grey is then invalid."""
        cdef int32_t known = 1
        if grey.shape[0] != colours.shape[0] or grey.shape[1] != colours.shape[1]:
            raise ValueError(f"grey has shape {np.shape(grey)}, expected that of colours, {np.shape(colours)}")
        if colours.shape[0] and colours.shape[1]:
            with nogil:
                known = kernels.look_up_greys(&grey[0, 0], &colours[0, 0], &self.table[0], colours.shape[0] * colours.shape[1])
        return known != 0

    def learn(self, colours, grey):
        """From now on the grey of each of colours is the one at its place in grey; uint8 of one shape."""
        if colours.dtype != np.uint8 or grey.dtype != np.uint8 or colours.shape != grey.shape:
            raise ValueError(f"{colours.dtype} {colours.shape} and {grey.dtype} {grey.shape}: expected uint8 of one shape")
        np.asarray(self.table)[colours] = grey


cdef class AreaResize:
    """Frames of one size as means over areas of another: `brighter(earlier, latest, out)` is one C call.

    shape, out_shape: (height, width) of frames and of results, 1 to 1,000 each. The bits are those of
    cv2.resize(np.maximum(earlier, latest), ..., interpolation=cv2.INTER_AREA) if neither side grows; else OpenCV interpolates,
    and here a pixel is the mean over its area as anywhere. Raises ValueError for other sizes, and for sides whose weights are too
    fine: see `fastes_resize`.
    """
    cdef fastes_resize c
    cdef readonly tuple shape, out_shape
    cdef uint8_t[::1] frame
    cdef uint16_t[::1] sums
    cdef int32_t[::1] totals
    cdef list kept

    def __init__(self, shape, out_shape):
        self.shape, self.out_shape, self.kept = tuple(shape), tuple(out_shape), []
        cdef fastes_resize *c = &self.c
        memset(c, 0, sizeof(fastes_resize))
        for name, value in (("shape", self.shape), ("out_shape", self.out_shape)):
            if len(value) != 2 or not all(1 <= side <= LARGEST_SIDE for side in value):
                raise ValueError(f"{name} = {value}: expected height and width, 1 to {LARGEST_SIDE} each")
        (height, width), (out_height, out_width) = self.shape, self.out_shape
        rows, columns = height // math.gcd(height, out_height), width // math.gcd(width, out_width)
        if rows > LARGEST_ROWS or rows * columns > LARGEST_AREA:
            raise ValueError(
                f"frames of {self.shape} cannot be resized to {self.out_shape}: a pixel is {rows} x {columns} parts of pixels, "
                f"expected at most {LARGEST_ROWS} rows and {LARGEST_AREA} parts"
            )
        self.take_side(&c.rows, height, out_height)
        self.take_side(&c.columns, width, out_width)
        self.frame = np.zeros(height * width, dtype=np.uint8)
        self.sums = np.zeros(width + c.columns.most, dtype=np.uint16)
        self.totals = np.zeros(out_width, dtype=np.int32)
        c.frame, c.sums, c.totals = &self.frame[0], &self.sums[0], &self.totals[0]
        c.unit = np.float32(1) / np.float32(rows * columns)
        if height % out_height == 0 and width % out_width == 0:  # OpenCV adds whole numbers then, and rounds halves of 2 x 2 up
            c.sure = 1
            c.offset = 0.5 if (rows, columns) == (2, 2) else 0
        else:
            c.sure = 0.5 - 256 * 2.0**-24 * (c.rows.most + c.columns.most + 9)  # at most 2^-24 of a number for each rounding

    cdef take_side(self, fastes_resize_side *side, int before, int after):
        """A side of before pixels that become after."""
        cdef int32_t[::1] first, count
        cdef uint16_t[:, ::1] weight
        cdef float[:, ::1] share
        covered = covered_pixels(before, after)
        most = max(len(each) for each in covered)
        first = np.array([each[0][0] for each in covered], dtype=np.int32)
        count = np.array([len(each) for each in covered], dtype=np.int32)
        weight = np.zeros((after, most), dtype=np.uint16)
        share = np.zeros((after, most), dtype=np.float32)
        for i, each in enumerate(covered):
            for k, (_, whole, part) in enumerate(each):
                weight[i, k], share[i, k] = whole, part
        self.kept += [first, count, weight, share]
        side.in_, side.out, side.most = before, after, most
        side.first, side.count = &first[0], &count[0]
        side.weight, side.share = &weight[0, 0], &share[0, 0]

    def brighter(self, const uint8_t[:, ::1] earlier not None, const uint8_t[:, ::1] latest not None,
                 uint8_t[:, ::1] out not None):
        """out = the brighter one of two frames at each pixel, resized. All uint8, frames of `shape`, out of `out_shape`."""
        cdef fastes_resize *c = &self.c
        if earlier.shape[0] != c.rows.in_ or earlier.shape[1] != c.columns.in_:
            raise ValueError(f"earlier has shape {np.shape(earlier)}, expected {self.shape}")
        if latest.shape[0] != c.rows.in_ or latest.shape[1] != c.columns.in_:
            raise ValueError(f"latest has shape {np.shape(latest)}, expected {self.shape}")
        if out.shape[0] != c.rows.out or out.shape[1] != c.columns.out:
            raise ValueError(f"out has shape {np.shape(out)}, expected {self.out_shape}")
        with nogil:
            kernels.resize_brighter(c, &earlier[0, 0], &latest[0, 0], &out[0, 0])


def covered_pixels(before, after):
    """For each of after pixels, which of before it covers: (pixel, weight, share), in order.

    weight: how much of it, in parts of which before / gcd make a whole; share: the same over 1, as OpenCV computes it
    (computeResizeAreaTab of imgproc/src/resize.cpp), in double precision.
    """
    divisor = math.gcd(before, after)
    size, unit = before // divisor, after // divisor  # of a pixel after and before, in parts
    scale = 1.0 / (after / before)
    covered = []
    for i in range(after):
        begin = i * scale
        end, length = begin + scale, min(scale, before - begin)
        last = min(math.floor(end), before - 1)
        first = min(math.ceil(begin), last)
        shares = []
        if first - begin > SMALLEST_PART:
            shares.append((first - 1, (first - begin) / length))
        shares += [(pixel, 1.0 / length) for pixel in range(first, last)]
        if end - last > SMALLEST_PART:
            shares.append((last, min(end - last, 1.0, length) / length))
        covered.append(
            [(pixel, min((pixel + 1) * unit, (i + 1) * size) - max(pixel * unit, i * size), share) for pixel, share in shares]
        )
    return covered
