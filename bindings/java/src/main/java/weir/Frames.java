package weir;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The positions of the items of a page of the shape {@code framed}, and their properties. */
public final class Frames {
    private static final int NUMBER = 1;
    private static final int BYTES = 2;

    /** A property of an item. */
    private record Property(int kind, int length, long number) {}

    private record Item(int offset, int length, Map<String, Property> properties) {}

    private final List<Item> items = new ArrayList<>();

    /** No items. */
    public Frames() {}

    /** Adds an item at a range of the page, in bytes. Later calls of {@code meta} apply to this item. */
    public Frames item(int offset, int length) {
        items.add(new Item(offset, length, new HashMap<>()));
        return this;
    }

    /** Sets {@code meta.NAME} of the last item to a number. */
    public Frames meta(String name, long number) {
        items.getLast().properties().put(name, new Property(NUMBER, 0, number));
        return this;
    }

    /** Sets {@code meta.NAME} of the last item to a range of the page, in bytes. */
    public Frames meta(String name, int offset, int length) {
        items.getLast().properties().put(name, new Property(BYTES, length, offset));
        return this;
    }

    /** Converts this to a {@code weir_frames} structure, with the properties of these names. */
    MemorySegment toNative(Arena call, List<String> names) {
        int count = items.size();
        MemorySegment spans = call.allocate(8L * Math.max(count, 1), Integer.BYTES);
        MemorySegment metas = call.allocate(16L * Math.max(count * names.size(), 1), Long.BYTES);
        long offset = 0;
        for (int at = 0; at < count; at++) {
            Item item = items.get(at);
            spans.set(JAVA_INT, 8L * at, item.offset());
            spans.set(JAVA_INT, 8L * at + 4, item.length());
            for (String name : names) {
                Property property = item.properties().get(name);
                if (property != null) {
                    metas.set(JAVA_INT, offset, property.kind());
                    metas.set(JAVA_INT, offset + 4, property.length());
                    metas.set(JAVA_LONG, offset + 8, property.number());
                }
                offset += 16;
            }
        }
        MemorySegment frames = call.allocate(32, Long.BYTES);
        frames.set(ADDRESS, 0, spans);
        frames.set(JAVA_LONG, 8, count);
        frames.set(ADDRESS, 16, metas);
        frames.set(JAVA_LONG, 24, (long) count * names.size());
        return frames;
    }
}
