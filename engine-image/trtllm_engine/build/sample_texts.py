"""Texts that activations are looked at with where no data set is given: a few kinds of writing, each of its own."""

from __future__ import annotations

from typing import Final

SAMPLE_TEXTS: Final = (
    "The old bridge had two lanes and a narrow walkway. Every morning the baker crossed it with a cart of bread, and "
    "every evening he came back with an empty one. When the river rose in spring, the town closed the bridge for a "
    "week, and people on the far bank baked for themselves.",
    "Question: A train leaves at 14:05 and needs 2 hours and 50 minutes. When does it arrive?\nAnswer: 14:05 plus two "
    "hours is 16:05, and 50 minutes more make it 16:55. The train arrives at 16:55.",
    "def largest(numbers):\n    found = numbers[0]\n    for number in numbers[1:]:\n        if number > found:\n"
    "            found = number\n    return found\n\n\nassert largest([3, 9, 2]) == 9\n",
    "To change a bicycle's tyre, first let the air out. Lift one side of the tyre over the rim with two levers, pull "
    "out the tube, and look for what made the hole. Put the new tube in with a little air, so that it does not fold.",
    '{"name": "kettle", "price": 34.5, "colours": ["red", "black"], "in_stock": true, "reviews": {"count": 128, '
    '"average": 4.4}}',
    "Dear Ms Okafor,\n\nthank you for your order of 12 March. Two of the five lamps are not in our warehouse yet; they "
    "will follow on Friday, without further cost to you. We are sorry for the delay.\n\nKind regards,\nthe sales team",
    "Water boils at 100 degrees Celsius at sea level. Higher up the air presses less, so that it boils earlier: at "
    "3,000 metres at about 90 degrees. Potatoes therefore need longer in the mountains.",
    "- Can you tell me how to get to the station?\n- Go straight on to the traffic lights, then left. It is behind the "
    "library.\n- Is it far?\n- Ten minutes, if you do not stop at the bookshop.",
    "SELECT city, COUNT(*) AS orders FROM sales WHERE year = 2023 GROUP BY city HAVING COUNT(*) > 10 ORDER BY orders "
    "DESC;",
    "El mercado abre a las ocho. Los martes hay pescado fresco, y los sábados vienen los agricultores de los pueblos "
    "vecinos con fruta, queso y miel.",
    "Der Zug nach Norden fährt heute von Gleis sieben. Reisende mit Fahrrädern steigen bitte in den letzten Wagen ein, "
    "denn die anderen sind voll.",
    "In 1854 a doctor marked on a map where people had fallen ill, and saw that the houses lay around one water pump. "
    "The handle of the pump was removed. It is often told as the beginning of a science that counts before it judges.",
)
