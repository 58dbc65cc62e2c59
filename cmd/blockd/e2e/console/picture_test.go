package console

import (
	"blockd/internal/testkit"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// shrink writes the pictures of a folder anew with a palette: a page has few colours, and a third of the octets then.
func shrink(t *testing.T, folder string) {
	t.Helper()
	names := testkit.Value(filepath.Glob(filepath.Join(folder, "*.png")))(t)
	for _, name := range names {
		f := testkit.Value(os.Open(name))(t)
		picture, err := png.Decode(f)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, is := picture.(*image.Paletted); is {
			continue
		}
		out, err := os.Create(name)
		testkit.Must(t, err)
		err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, paletted(picture))
		if closed := out.Close(); err == nil {
			err = closed
		}
		testkit.Must(t, err)
	}
}

// paletted is a picture in the 256 colours that it has most of. Others become the nearest of these.
func paletted(picture image.Image) *image.Paletted {
	bounds := picture.Bounds()
	seen := map[color.NRGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(seen), func(a, b color.NRGBA) int { return seen[b] - seen[a] })
	palette := make(color.Palette, 0, 256)
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	nearest := make(map[color.NRGBA]uint8, len(seen))
	for c := range seen {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)])
		}
	}
	return small
}
