"""Rhymed couplets by topic, put together into small poems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .words import upper_first

if TYPE_CHECKING:
    from .words import Pen

COUPLETS: dict[str, tuple[tuple[str, str], ...]] = {
    "the sun": (
        ("The sun comes up, the night is gone,", "the birds are singing on the lawn."),
        ("It paints the hills in red and gold,", "and warms the young, and warms the old."),
        ("The flowers open one by one", "and turn their faces to the sun."),
        ("And when the day is at its end,", "we say good night, our golden friend."),
    ),
    "the moon": (
        ("The moon is round, the moon is white,", "it is the lantern of the night."),
        ("It looks into my little room", "and makes the silver flowers bloom."),
        ("It walks so softly through the sky", "and hears the owl's low lullaby."),
        ("So close your eyes, the day is done,", "the moon will guard us for the sun."),
    ),
    "the sea": (
        ("The sea is wide, the sea is blue,", "it sings an old song, ever new."),
        ("The waves come in, the waves go out,", "and turn the little shells about."),
        ("A white ship sails into the west", "to find an island where to rest."),
        ("And on the beach I stand and stay", "until the sun has gone away."),
    ),
    "the rain": (
        ("The rain is falling on the town,", "the silver drops come tumbling down."),
        ("It taps a song upon the pane", "and runs in rivers down the lane."),
        ("The thirsty garden drinks it all,", "the roses by the garden wall."),
        ("And when the clouds have passed us by,", "a rainbow shines across the sky."),
    ),
    "winter": (
        ("The snow is falling soft and slow", "on all the houses, row by row."),
        ("The lake is ice, the trees are bare,", "there is a stillness in the air."),
        ("We sit inside, the fire is bright,", "and tell each other tales at night."),
        ("And deep below the frozen ground,", "the seeds are sleeping, safe and sound."),
    ),
    "spring": (
        ("The snow is gone, the brooks run free,", "there is a green leaf on the tree."),
        ("The birds return from far away,", "and longer, longer grows the day."),
        ("The meadow wears a coat of green,", "the finest dress you've ever seen."),
        ("So open wide your window, do,", "and let the spring come in to you."),
    ),
    "a friend": (
        ("A friend is like a light that's near", "when nights are dark, to take your fear."),
        ("A friend will share his bread with you", "and tell you only what is true."),
        ("We walk together, side by side,", "the road is long, the world is wide."),
        ("And if one day you go from me,", "my friend you will for ever be."),
    ),
    "a tree": (
        ("There stands a tree upon the hill,", "the winds may blow, it stands there still."),
        ("Its roots go deep, its crown goes high,", "its branches reach into the sky."),
        ("A hundred birds have built their nest", "among its leaves, and come to rest."),
        ("And in its shade, on summer days,", "the children have their games and plays."),
    ),
    "the night": (
        ("The day is done, the night is here,", "the sky is dark, the stars are clear."),
        ("The houses sleep, the fields are still,", "the fox is walking on the hill."),
        ("The owl is calling from the tree,", "the wind is singing quietly."),
        ("Sleep well, my friend, and have no fear,", "the morning light will soon be here."),
    ),
    "a cat": (
        ("My cat has fur as soft as snow,", "her steps are quiet, sure and slow."),
        ("She sleeps all day upon my bed", "and dreams of milk and fish instead."),
        ("At night she walks along the wall,", "the queen of gardens, roofs and all."),
        ("And when I'm sad, she comes to me", "and purrs until I smile, you see."),
    ),
    "a node": (
        ("A little node sat all alone,", "it had one layer of its own."),
        ("It called into the wide, wide net:", "is anybody out there yet?"),
        ("Another node said, here I am,", "and so the little mesh began."),
        ("Now word by word the answers flow", "from node to node, and on they go."),
    ),
    "autumn": (
        ("The leaves are yellow, red and brown,", "the wind has come to bring them down."),
        ("The apples lie upon the grass,", "and high above, the wild geese pass."),
        ("The mornings wear a cloak of grey,", "a little shorter grows the day."),
        ("We light the lamp, we close the door,", "and read old stories, three or four."),
    ),
}


def poem(pen: Pen) -> str:
    """A poem of two to four couplets, often after a request for it."""
    topic, couplets = pen.pick(tuple(COUPLETS.items()))
    size = pen.number(2, 4)
    chosen = sorted(pen.some(range(4), size))
    lines = []
    for i in chosen:
        lines += [couplets[i][0], upper_first(couplets[i][1])]
    text = "\n".join(lines)
    about = f" about {topic}"
    ask = pen.pick(
        (
            f"Write a poem{about}",
            f"Write a poem{about}",
            "Write a poem",
            "Write a poem",
            f"Write a short poem{about}",
            f"write a poem{about}",
            "write a poem",
            f"Tell me a poem{about}",
            f"A poem{about}",
            "Can you write a poem?",
            "Recite a poem",
        )
    )
    if not ask.endswith("?"):
        ask += pen.one("||.|.|:")
    if pen.chance(0.2):
        return text
    if pen.chance(0.15):
        return f"{upper_first(topic)}\n\n{text}"
    return f"{ask}{pen.one(chr(10) + '|' + chr(10) * 2)}{text}"
